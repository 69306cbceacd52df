# One image for web and worker processes; see docs/operations.md, compose.yaml and
# deploy/kubernetes.
FROM python:3.12-slim AS builder
WORKDIR /srv/parley
# Without pip beside them: only a build changes what the image has.
COPY requirements-image.txt .
RUN python -m venv --without-pip /opt/parley \
    && pip --python /opt/parley/bin/python install --no-cache-dir --require-hashes \
    -r requirements-image.txt
COPY . .
# Whoever has cloned it may have kept it from all others.
RUN chmod -R a+rX . && python -m compileall -q conversations llm tools project

FROM python:3.12-slim
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/parley/bin:$PATH
# A number that stays: what it owns is in volumes, which outlive the image.
RUN groupadd --system --gid 999 parley \
    && useradd --system --uid 999 --gid 999 --create-home parley \
    && install -d -o parley -g parley -m 700 /var/lib/parley /var/lib/parley/media
COPY --from=builder /opt/parley /opt/parley
COPY --from=builder /srv/parley /srv/parley
WORKDIR /srv/parley
USER 999:999
# Packages of PARLEY_APPS may be mounted at /srv/apps.
ENV PARLEY_DATA=/var/lib/parley PARLEY_READ_DOTENV=false HOST=0.0.0.0 PORT=8000 \
    PYTHONPATH=/srv/apps
EXPOSE 8000
STOPSIGNAL SIGTERM
# The first start makes the tables. A worker asks with `worker` as argument.
HEALTHCHECK --interval=10s --timeout=10s --start-period=600s \
    CMD ["python", "deploy/healthy.py"]
# The version is that of pyproject.toml; `--build-arg REVISION=$(git rev-parse HEAD)`.
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Parley" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="$REVISION" \
    org.opencontainers.image.licenses="MIT"
CMD ["python", "manage.py", "serve"]
