// The hook: a session for as long as the component is there.

import assert from 'node:assert/strict';
import { it } from 'node:test';
import { createElement, StrictMode } from 'react';
import { act, create } from 'react-test-renderer';

import { useRejoin } from '../src/react.js';
import { created, event, FakeWebSocket } from './support/fakes.js';

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const settle = () => act(() => new Promise((resolve) => setImmediate(resolve)));

/** A chat in ten lines. */
function Chat({ url }) {
  const { status, events, send } = useRejoin(url, { WebSocket: FakeWebSocket });
  return createElement(
    'p',
    { onClick: () => send('hello') },
    `${status.state}: ${events.map(({ content }) => content).join(' ')}`,
  );
}

it('shows status and events, sends, and leaves with the component', async () => {
  FakeWebSocket.reset();
  let page;
  await act(async () => void (page = create(createElement(Chat, { url: 'ws://server/ws' }))));
  await settle();
  assert.equal(page.root.findByType('p').children[0], 'connecting: ');
  const socket = FakeWebSocket.last();
  await act(() => socket.open());
  await act(async () => [created(), event(1), event(2)].forEach((frame) => socket.say(frame)));
  assert.equal(page.root.findByType('p').children[0], 'connected: 1 2');
  await act(async () => void page.root.findByType('p').props.onClick());
  assert.equal(socket.sent.at(-1).content, 'hello');
  await act(async () => page.unmount());
  assert.ok(socket.closedByClient);
});

it('in strict mode, where effects run twice, one session is left', async () => {
  FakeWebSocket.reset();
  let page;
  await act(
    async () =>
      void (page = create(createElement(StrictMode, null, createElement(Chat, { url: 'ws://server/ws' })))),
  );
  await settle();
  assert.equal(FakeWebSocket.all.filter((socket) => !socket.closedByClient).length, 1);
  await act(async () => page.unmount());
});
