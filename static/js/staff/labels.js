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

function labelMultiple(select, box) {
  const field = box?.querySelector('.select2-search__field');
  const label = select.labels[0]?.textContent.trim();
  if (field && label) field.setAttribute('aria-label', label);
}

// Fields that are searched: select2 names an empty one with nothing.
function labelSearched() {
  for (const select of document.querySelectorAll('select.admin-autocomplete')) {
    const box = select.nextElementSibling;
    if (select.multiple) labelMultiple(select, box);
    const shown = box?.querySelector('.select2-selection__rendered');
    const label = select.labels[0]?.textContent.trim();
    if (!shown || !label) continue;
    const chosen = select.selectedOptions[0]?.textContent.trim() ?? '';
    shown.setAttribute('aria-label', `${label} ${chosen}`.trim());
  }
}

if (document.querySelector('select.admin-autocomplete')) {
  const drawn = { childList: true, subtree: true };
  new MutationObserver(labelSearched).observe(document.body, drawn);
  labelSearched();
}
