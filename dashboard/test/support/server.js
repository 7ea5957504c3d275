// The real server, and a network before it: the same as for the tests of the client.

export { AGENT, Server } from '../../../clients/js/test/support/server.js';
export { Proxy } from '../../../clients/js/test/support/proxy.js';
