// Asking before something that can't be undone.

import { h } from './dom.js';

/** @param {{ title: string, text: string, yes: string }} what @returns {Promise<boolean>} */
export function confirm({ title, text, yes }) {
  return new Promise((resolve) => {
    const dialog = h(
      'dialog',
      { class: 'card', 'aria-labelledby': 'confirm-title' },
      h('h2', { id: 'confirm-title' }, title),
      h('p', {}, text),
      h(
        'div',
        { class: 'actions' },
        h('button', { type: 'button', autofocus: true, onclick: () => dialog.close() }, 'Cancel'),
        h('button', { type: 'button', class: 'danger', onclick: () => dialog.close('yes') }, yes),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
