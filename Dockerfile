# Two images from one build: `app` runs servers and workers, `web` is nginx with the page.
#
# The embedded database and model of `unbroken up`, and everything for development, stay out.

FROM python:3.11-slim AS build
RUN pip install --no-cache-dir uv
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/unbroken
WORKDIR /build
# Dependencies first: they change less often than the code, and are then not installed again.
COPY pyproject.toml README.md ./
RUN uv sync --no-default-groups --no-install-project
COPY unbroken ./unbroken
RUN uv sync --no-default-groups --no-editable


FROM python:3.11-slim AS app
# A number, not a name: then "runs as no root" can be checked from outside. The folder exists so that a
# volume mounted there belongs to this user.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin unbroken \
    && install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/unbroken /opt/unbroken
ENV PATH=/opt/unbroken/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 UNBROKEN_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
EXPOSE 8080
STOPSIGNAL SIGTERM
CMD ["unbroken", "server"]


FROM nginx:stable AS web
COPY nginx /etc/unbroken
COPY unbroken/static /srv/unbroken/static
USER 101:101
EXPOSE 8080
# SIGQUIT: calls that are being answered are finished first.
STOPSIGNAL SIGQUIT
ENTRYPOINT ["nginx"]
CMD ["-e", "stderr", "-c", "/etc/unbroken/nginx.conf"]
