// Elements with children that may be missing, pictures, and a few shapes that the views share.

import { make } from '/assets/shared/dom.js';

/** @typedef {Node|string|number|null|undefined|false} Child what is nothing is left out */

/**
 * An element with properties or attributes (`onclick` is a property) and children.
 *
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Record<string, unknown>} [properties] @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, properties = {}, ...children) {
  return make(tag, properties, ...present(children));
}

const SVG = 'http://www.w3.org/2000/svg';

/**
 * The same for pictures.
 *
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Record<string, string|number>} [attributes] @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...present(children));
  return element;
}

/** @param {Child[]} children */
const present = (children) =>
  children
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === 'number' ? String(child) : child));

/** Sets the text of an element if it is another one: what has not changed need not be drawn or read out again.
 *  @param {Element} element @param {string|number} text */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** A description list of names and values.
 *  @param {[string, Node|string|number][]} facts */
export function facts(facts) {
  const list = h('dl', { class: 'facts' });
  for (const [name, value] of facts) list.append(h('div', {}, h('dt', {}, name), h('dd', {}, value)));
  return list;
}
