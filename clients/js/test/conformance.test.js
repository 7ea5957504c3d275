// Runs the language-neutral cases of /conformance against the machine.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { describe, it } from 'node:test';

import { Machine, NOTHING_SAVED } from '../src/machine.js';

const root = new URL('../../../conformance/', import.meta.url);
const json = (path) => JSON.parse(readFileSync(new URL(path, root), 'utf8'));
const frames = json('frames.json');
const scenes = json('scenes.json');
const START = 1_000_000;

let count = 0;
for (const file of readdirSync(new URL('cases/', root)).sort()) {
  const { about, cases } = json(`cases/${file}`);
  describe(`${file}: ${about}`, () => {
    for (const example of cases) {
      count += 1;
      it(example.name, () => play(example));
    }
  });
}

it('there are at least 60 cases', () => assert.ok(count >= 60, `${count}`));

function play(example) {
  const chapters = [example];
  while (chapters[0].scene) {
    const scene = scenes[chapters[0].scene];
    assert.ok(scene, `no scene ${chapters[0].scene}`);
    chapters.unshift(scene);
  }
  const given = Object.assign(
    {},
    ...chapters.map(({ saved, options }) => ({ ...(saved && { saved }), ...(options && { options }) })),
  );
  const run = { machine: new Machine(options(given.options), given.saved && saved(given.saved)), now: START };
  run.started = run.machine.takeOutputs();
  for (const { steps } of chapters)
    steps.forEach((step, at) => take(run, step, `step ${at}: ${JSON.stringify(step.in)}`));
}

function take(run, step, where) {
  run.now += step.after_ms ?? 0;
  const outputs =
    step.in === 'start'
      ? run.started
      : inputs(step.in).flatMap((input) => {
          run.machine.handle(input, run.now);
          return run.machine.takeOutputs();
        });
  if (step.out) {
    const wanted = step.out.flatMap(expected);
    assert.deepEqual(
      outputs.map((output, at) => inWords(output, wanted[at])),
      wanted,
      where,
    );
  }
  if ('next_ms' in step) {
    const due = run.machine.nextDeadline();
    assert.equal(due === null ? null : due - run.now, step.next_ms, `${where}: next deadline`);
  }
}

function inputs(happened) {
  if (typeof happened === 'string') return [{ type: happened }];
  if ('frame' in happened) return [{ type: 'frame', frame: named(happened.frame, happened.with) }];
  if ('events' in happened)
    return seqs(happened.events).map((seq) => ({ type: 'frame', frame: { ...frames.event, seq } }));
  const [type] = Object.keys(happened);
  return [{ type, ...(type === 'closed' && { code: null }), ...happened[type] }];
}

/** An output of the machine in the words of the cases; an event by its number where the case does so. */
function inWords(output, wanted) {
  const { type, ...rest } = output;
  switch (type) {
    case 'send':
      return { send: withoutNulls(output.frame) };
    case 'event':
      return { event: typeof wanted?.event === 'number' ? output.frame.seq : output.frame };
    case 'gap':
      return { gap: output.gap };
    case 'state':
      return { state: { seq: output.frame.metadata.seq, fills_gap: output.fills_gap } };
    case 'refused':
      return { refused: output.code };
    case 'status':
      return { status: output.status };
    case 'save':
      return { save: output.saved };
    default:
      return Object.keys(rest).length === 0 ? type : { [type]: rest };
  }
}

function expected(output) {
  if (typeof output === 'string') return [output];
  if ('send' in output) return [{ send: withoutNulls(named(output.send, output.with)) }];
  if ('save' in output) return [{ save: saved(output.save, output.with) }];
  if ('events' in output) return seqs(output.events).map((seq) => ({ event: seq }));
  return [output];
}

function named(name, patch) {
  const value = typeof name === 'string' ? frames[name] : name;
  assert.ok(value, `nothing is named ${name}`);
  return patch ? merge(value, patch) : value;
}

function saved(name, patch) {
  return { ...NOTHING_SAVED, ...named(name, patch) };
}

/** RFC 7386. */
function merge(target, patch) {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const merged = typeof target === 'object' && target !== null && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = merge(merged[key], value);
  }
  return merged;
}

const withoutNulls = (frame) => JSON.parse(JSON.stringify(frame, (_, value) => value ?? undefined));

const seqs = ([from, to]) => Array.from({ length: to - from + 1 }, (_, at) => from + at);

function options(given = {}) {
  const camel = (key) => key.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [camel(key), value]));
}
