// Entry point of pages that are lists and forms. They work without JavaScript.

import { localiseTimes } from "./times.js";

localiseTimes(document);
