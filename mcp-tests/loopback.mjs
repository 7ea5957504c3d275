// `node --import` this before a server that can't be told to listen on loopback only.

import net from 'node:net';

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const says = typeof port === 'number' && typeof rest[0] !== 'string';
  return says ? listen.call(this, port, '127.0.0.1', ...rest) : listen.call(this, port, ...rest);
};
