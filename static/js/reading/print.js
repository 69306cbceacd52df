// Entry point of the page for paper: formulas and diagrams are drawn, without buttons.

import { $ } from "../dom.js";
import { drawDiagrams } from "./diagrams.js";
import { typesetFormulas } from "./formulas.js";

typesetFormulas($("#transcript"), { isAll: true });
drawDiagrams($("#transcript"));
