// What axe finds wrong with a page for people who can't see it, or use no mouse.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const source = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Nothing serious or critical is wrong with the page as it is now. @param {import('playwright-core').Page} page */
export async function isAccessible(page) {
  await page.evaluate(source);
  const violations = await page.evaluate(async () => {
    const found = await /** @type {any} */ (globalThis).axe.run(document, { resultTypes: ['violations'] });
    return found.violations.map(({ id, impact, help, nodes }) => ({
      id,
      impact,
      help,
      where: nodes.map((node) => node.target.join(' ')).slice(0, 5),
    }));
  });
  const serious = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  assert.deepEqual(serious, []);
  return violations;
}
