// Long lists of boxes in the admin: tick all that are shown, and show those with a text.

const boxesOf = (list) => list.querySelectorAll(':scope > li:not([hidden]) input');

function connect(tools) {
  const list = tools.nextElementSibling;
  const [all, text] = tools.querySelectorAll('input');
  const total = tools.querySelector('output');
  const compare = () => {
    const boxes = [...boxesOf(list)];
    const ticked = boxes.filter((box) => box.checked).length;
    all.checked = boxes.length > 0 && ticked === boxes.length;
    all.indeterminate = ticked > 0 && ticked < boxes.length;
    total.value = list.querySelectorAll(':checked').length; // also of those not shown
  };
  all.addEventListener('change', () => {
    for (const box of boxesOf(list)) box.checked = all.checked;
    compare();
  });
  list.addEventListener('change', compare);
  text.addEventListener('input', () => {
    const wanted = text.value.trim().toLowerCase();
    for (const row of list.children) {
      row.hidden = !row.querySelector('input').value.toLowerCase().includes(wanted);
    }
    compare();
  });
  // Enter would send the form with whatever is ticked.
  text.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') event.preventDefault();
  });
  tools.hidden = false; // it needs this script
  compare(); // a browser that goes back restores what was ticked
}

for (const tools of document.querySelectorAll('.tick-all')) connect(tools);
