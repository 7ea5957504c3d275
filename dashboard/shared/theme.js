// Light or dark: what the system says, or what was chosen here. Loaded in the head, before anything is
// drawn (a classic script, not a module), so that a page never flashes in the other one.

(() => {
  const root = document.documentElement;
  const chosen = () => localStorage.getItem('rejoin-theme');
  const isDark = () => (chosen() ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
  const apply = () => {
    const theme = chosen();
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    for (const button of document.querySelectorAll('[data-switch-theme]')) {
      button.setAttribute('aria-pressed', String(isDark()));
    }
  };

  apply();
  document.addEventListener('DOMContentLoaded', () => {
    apply();
    for (const button of document.querySelectorAll('[data-switch-theme]')) {
      button.addEventListener('click', () => {
        localStorage.setItem('rejoin-theme', isDark() ? 'light' : 'dark');
        apply();
      });
    }
  });
  addEventListener('storage', apply);
})();
