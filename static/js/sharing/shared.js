// Entry point of the page behind a link. Without JavaScript it is complete, and plain.

import { copyOnClick } from "../copy.js";
import { startReading } from "../reading/reading.js";
import { localiseTimes } from "../times.js";
import { followShared } from "./follow.js";

copyOnClick();
startReading();
localiseTimes(document);
followShared();
