// Which messages of forms have arrived: the server names the key of each in a cookie of
// its own, so that a page that comes after an error of the network, or after the answer
// to another tab, is not taken for its answer.

export const hasArrived = (key) =>
  (document.cookie ?? "").split("; ").some((each) => each.startsWith(`parley_sent_${key}=`));
