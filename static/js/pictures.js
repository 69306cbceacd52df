// Pictures made small enough for every provider before they are uploaded.
//
// Hosts refuse a picture above about 5 MB of base64, or above 2000 pixels where a request
// has many. A refused picture stays in the history, so every later message fails too.

const LONG_SIDE = 2000; // pixels
const LARGEST = 3_500_000; // bytes; base64 adds a third
const TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const BACKGROUND = "#fff"; // JPEG has no transparency

/** Whether browsers may be able to draw the file. SVG is text for models. */
export function isPicture({ type }) {
  return type.startsWith("image/") && type !== "image/svg+xml";
}

/** The picture in a size and format for models; the file itself if that is so already, or
 * if this browser cannot draw it. */
export async function fitPicture(file) {
  try {
    const bitmap = await createImageBitmap(file);
    const isFit = TYPES.has(file.type) && file.size <= LARGEST;
    if ((isFit && longSide(bitmap) <= LONG_SIDE) || !isReadBack()) return file;
    const blob = await encode(draw(bitmap), file.type);
    return new File([blob], nameFor(file.name, blob.type), { type: blob.type });
  } catch {
    return file; // the server says what is wrong with it
  }
}

function longSide({ width, height }) {
  return Math.max(width, height);
}

function draw(bitmap) {
  const scale = Math.min(1, LONG_SIDE / longSide(bitmap));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}

/** PNG for what was PNG (screenshots, drawings), if that is small enough; else JPEG. */
async function encode(canvas, type) {
  const exact = type === "image/png" ? await blobOf(canvas, type) : null;
  if (exact && exact.size <= LARGEST) return exact;
  const context = canvas.getContext("2d");
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = BACKGROUND;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const good = await blobOf(canvas, "image/jpeg", 0.85);
  return good.size <= LARGEST ? good : blobOf(canvas, "image/jpeg", 0.6);
}

function blobOf(canvas, type, quality) {
  return new Promise((resolve, reject) => {
    const done = (blob) => (blob ? resolve(blob) : reject(new Error("not encoded")));
    canvas.toBlob(done, type, quality);
  });
}

/** Browsers that resist fingerprinting give back noise instead of what was drawn. */
function isReadBack() {
  const drawn = [40, 90, 160];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  const context = canvas.getContext("2d");
  context.fillStyle = `rgb(${drawn})`;
  context.fillRect(0, 0, 8, 8);
  const { data } = context.getImageData(0, 0, 8, 8);
  return data.every((value, i) => i % 4 === 3 || Math.abs(value - drawn[i % 4]) < 9);
}

function nameFor(name, type) {
  const suffix = type === "image/png" ? ".png" : ".jpg";
  const isRight = type === "image/jpeg" ? /\.jpe?g$/i : /\.png$/i;
  return isRight.test(name) ? name : `${name.replace(/\.[^.]{1,5}$/, "")}${suffix}`;
}
