// Names for fields of the admin that Django gives none, for people who cannot see them.

const nameOf = (input) =>
  input.closest('.form-row')?.querySelector('legend, label')?.textContent ?? '';

// "Expires at: Date" and "Expires at: Time" instead of two fields without a name.
function labelDates(root) {
  for (const input of root.querySelectorAll('.datetime input')) {
    if (input.dataset.labelled) continue;
    const part = input.previousSibling?.textContent.trim() ?? '';
    const name = input.getAttribute('aria-label') ?? nameOf(input).trim();
    input.setAttribute('aria-label', `${name} ${part}`.replaceAll(':', '').trim());
    input.dataset.labelled = 'yes';
  }
}

labelDates(document);
document.addEventListener('formset:added', (event) => labelDates(event.target));

const search = document.querySelector('#searchbar');
search?.setAttribute('aria-label', search.labels[0].querySelector('img').alt);

// Django's script makes these icons when the page is loaded.
addEventListener('load', () => {
  for (const icon of document.querySelectorAll('.search-label-icon[aria-label]')) {
    icon.setAttribute('role', 'img');
  }
});
