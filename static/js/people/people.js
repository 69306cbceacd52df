// Entry point of what a person brings to the chat page: prompts and keys.

import { $ } from "../dom.js";
import { editLastOnUp } from "./edit-last.js";
import { completeModels, completePrompts } from "./mentions.js";
import { installApp } from "./install.js";
import { offerModels } from "./model-picker.js";
import { NewChatOutbox } from "./new-chat-outbox.js";
import { giveBackOrphans } from "./orphans.js";
import { listenForShortcuts } from "./shortcuts.js";

const { dataset } = $("#people");
const { user } = document.body.dataset;
const isNew = !("conversation" in $("#conversation").dataset);
const box = $("#text");

completePrompts(box, dataset);
completeModels(box, dataset);
offerModels();
editLastOnUp(box);
listenForShortcuts(dataset);
installApp(user);
const { kept, sending, refused, old, newChat } = dataset;
const keyDays = Number(dataset.keyDays);
new NewChatOutbox(user, { kept, sending, refused, old, newChat }, { isNew, keyDays }).start();
if (isNew) giveBackOrphans(user, box);
