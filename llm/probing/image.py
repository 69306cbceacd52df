"""The image that a probe shows to models: a red square of 64 by 64 pixels, PNG."""

from __future__ import annotations

RED_SQUARE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAT0lEQVR42u3PQQkAAAgEsI"
    "tw/dMZxQi+hcEKLNO+FgEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"
    "AQEBAQEBAQGBywLQTQDx3uY1cQAAAABJRU5ErkJggg=="
)
