# One image for web and worker processes; see compose.yaml.
FROM python:3.12-slim AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/parley
COPY requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY . .
RUN python -m compileall -q conversations llm tools project \
    && useradd --system --create-home parley \
    && install -d -o parley -m 700 /var/lib/parley /var/lib/parley/media
USER parley
ENV PARLEY_DATA=/var/lib/parley PARLEY_READ_DOTENV=false HOST=0.0.0.0 PORT=8000
EXPOSE 8000
STOPSIGNAL SIGTERM
CMD ["python", "manage.py", "serve"]
