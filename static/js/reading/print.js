// Entry point of the page for paper.

import { $ } from "../dom.js";
import { leaveWithUser } from "../people/sign-out.js";
import { drawDiagrams } from "./diagrams.js";
import { typesetFormulas } from "./formulas.js";

leaveWithUser(document.body.dataset.user);
typesetFormulas($("#transcript"), { isAll: true });
drawDiagrams($("#transcript"));
