// Entry point of pages that are lists and forms. They work without JavaScript.

import { forgetOnSignOut, leaveWithUser } from "./people/sign-out.js";
import { localiseTimes } from "./times.js";

localiseTimes(document);
const { user } = document.body.dataset; // links that are shared openly have none
if (user) leaveWithUser(user);
forgetOnSignOut(user);
