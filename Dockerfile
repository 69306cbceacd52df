# One image for web and worker processes; see docs/operations.md and compose.yaml.
FROM python:3.12-slim
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number that stays: what it owns is in volumes, which outlive the image.
RUN useradd --system --uid 999 --create-home parley \
    && install -d -o parley -g parley -m 700 /var/lib/parley /var/lib/parley/media
WORKDIR /srv/parley
COPY requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY . .
# Whoever has cloned it may have kept it from all others.
RUN chmod -R a+rX . && python -m compileall -q conversations llm tools project
USER 999
# Packages of PARLEY_APPS may be mounted at /srv/apps.
ENV PARLEY_DATA=/var/lib/parley PARLEY_READ_DOTENV=false HOST=0.0.0.0 PORT=8000 \
    PYTHONPATH=/srv/apps
EXPOSE 8000
STOPSIGNAL SIGTERM
# The first start makes the tables.
HEALTHCHECK --interval=10s --timeout=10s --start-period=120s \
    CMD ["python", "deploy/healthy.py"]
CMD ["python", "manage.py", "serve"]
