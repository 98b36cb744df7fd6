// Loaded before a server that offers no choice of address: it listens on 127.0.0.1 and nowhere else.

import { Server } from "node:net";

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  const callback = rest.find((argument) => typeof argument === "function");
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, callback);
};
