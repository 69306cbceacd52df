// Reads CSV and TSV as rows of cells.

/** The first `most` rows. */
export function rowsOf(text, most) {
  const separator = separatorOf(text);
  const token = new RegExp(`"((?:[^"]|"")*)"?|([^"\\r\\n${separator}][^\\r\\n${separator}]*)|(\\r?\\n|\\r)|(${separator})`, "y");
  const rows = [];
  let row = [""];
  for (let found; rows.length < most && (found = token.exec(text)); ) {
    const [, quoted, plain, line] = found;
    if (line !== undefined) {
      rows.push(row);
      row = [""];
    } else if (quoted !== undefined) row[row.length - 1] += quoted.replaceAll('""', '"');
    else if (plain !== undefined) row[row.length - 1] += plain;
    else row.push("");
  }
  if (rows.length < most && (row.length > 1 || row[0])) rows.push(row);
  return rows;
}

/** The separator that the first line has most often. */
function separatorOf(text) {
  const first = text.slice(0, 2000).split(/[\r\n]/, 1)[0];
  const count = (mark) => first.split(mark).length;
  return [",", ";", "\t"].reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}
