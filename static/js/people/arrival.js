// Which message of a form has arrived: the server names its key in a cookie, so that a
// page that comes after an error of the network is not taken for its answer.

export const arrivedKey = () =>
  /(?:^|; )parley_sent=([\w-]+)/.exec(document.cookie ?? "")?.[1] ?? "";
