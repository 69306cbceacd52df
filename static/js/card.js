// Entry point of the sign-in page, and of pages before and after one has an account.

import { forgetOnSignOut, forgetWritten, tellOtherTabs } from "./people/sign-out.js";
import { lastUser } from "./people/waiting.js";

const { user } = document.body.dataset;
if (document.querySelector("[data-account-deleted]")) forgetWritten(lastUser());
if (user) forgetOnSignOut(user);
else tellOtherTabs();
