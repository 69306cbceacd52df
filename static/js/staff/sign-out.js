// The admin's part of signing out, see static/js/people/sign-out.js.

import { forgetOnSignOut, leaveWithUser } from '../people/sign-out.js';

const user = document.querySelector('meta[name="user"]').content;
leaveWithUser(user);
forgetOnSignOut(user);
