// Page of access tokens: copies the new token by its button.

import { copyOnClick } from "./copy.js";

copyOnClick();
