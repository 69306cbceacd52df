// The page of access tokens: the new one is copied by its button.

import { copyOnClick } from "./copy.js";

copyOnClick();
