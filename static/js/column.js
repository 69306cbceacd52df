// Entry point of pages that are lists and forms. They work without JavaScript.

import { forgetOnSignOut, leaveWithUser } from "./people/sign-out.js";
import { lastUser } from "./people/waiting.js";
import { localiseTimes } from "./times.js";

localiseTimes(document);
const { user } = document.body.dataset; // links that are shared openly have none
const isGivenBack = document.querySelector("form[data-unsent]") !== null;
const reader = user ?? (isGivenBack ? lastUser() : null); // whose session has ended
if (reader) leaveWithUser(reader);
forgetOnSignOut(user);
