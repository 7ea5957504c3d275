// What a test began is ended in the opposite order: `t.after` alone would end a server before the pages that
// still speak to it.

/** @typedef {() => unknown} End */

/** @type {WeakMap<object, End[]>} */
const ENDS = new WeakMap();

/** Does something after the test, whatever becomes of it. @param {{ after: (end: End) => void }} t @param {End} end */
export function afterwards(t, end) {
  const known = ENDS.get(t);
  if (known) return void known.push(end);
  const ends = [end];
  ENDS.set(t, ends);
  t.after(() => runAll(ends));
}

/** All of them, also if some fail; then the first failure. @param {End[]} ends */
async function runAll(ends) {
  const failures = [];
  for (const end of ends.reverse()) {
    try {
      await end();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}
