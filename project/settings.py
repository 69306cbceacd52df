"""Settings. Each environment variable is read here once; docs/settings.md lists all."""

from __future__ import annotations

from datetime import timedelta

from project.environment.accounts import read_accounts, read_disabled_providers
from project.environment.added_apps import (
    find_all_providers,
    list_app_entries,
    read_added_apps,
)
from project.environment.address import Address
from project.environment.locations import find_locations
from project.environment.scaled import channel_layer
from project.environment.variables import Environment

LOCATIONS = find_locations()

env = Environment(LOCATIONS.base)

# The data folder and its secrets

DATA = env.data
SECRET_KEY = env.secret_key
ENCRYPTION_KEYS = env.encryption_keys

# Address

HOST = env.text("HOST", "127.0.0.1")
PORT = env.port("PORT", 8000)
SELF_URL = Address(HOST, PORT).url  # where the demo provider is requested
DEBUG = env.flag("DEBUG", False)
ALLOWED_HOSTS = env.hosts("ALLOWED_HOSTS", Address(HOST, PORT).names())
CSRF_TRUSTED_ORIGINS = env.origins("CSRF_TRUSTED_ORIGINS")
BEHIND_HTTPS = env.flag("BEHIND_HTTPS", False)

# Django

INSTALLED_APPS = [
    "project",  # first: its commands override Django's and Daphne's
    "project.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "csp",
    "axes",
    "llm",
    "tools",
    "conversations",
]
ADDED_APPS = read_added_apps(env, "PARLEY_APPS")
INSTALLED_APPS += list_app_entries(ADDED_APPS, INSTALLED_APPS)

MIDDLEWARE = [
    "project.headers.set_headers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "project.health.answer_supervisors",
    "conversations.access.sessions.note_sessions",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "conversations.access.user_language.UserLanguageMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [LOCATIONS.files / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "conversations.pages.maintenance.banner",
            ]
        },
    }
]

DATABASES = {"default": env.database("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.redis("REDIS_URL")  # non-empty: the scaled delivery
CHANNEL_LAYERS = {"default": channel_layer(REDIS_URL)}
if REDIS_URL:
    # Creates the job tables, which only the scaled delivery uses.
    INSTALLED_APPS += ["procrastinate.contrib.django"]
    PROCRASTINATE_AUTODISCOVER_MODULE_NAME = ""
    PROCRASTINATE_IMPORT_PATHS = ["conversations.engine.redis.jobs"]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "chat"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en"
LANGUAGES = [  # each named in itself, so that everybody finds their own
    ("en", "English"),
    ("de", "Deutsch"),
    ("fr", "Français"),
    ("es", "Español"),
    ("zh-hans", "简体中文"),
]
LOCALE_PATHS = [LOCATIONS.project / "locale"]
TIME_ZONE = env.time_zone("TIME_ZONE", "UTC")
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [LOCATIONS.files / "static"]
WHITENOISE_USE_FINDERS = True  # makes collectstatic unnecessary
MEDIA_ROOT = DATA / "media"

# Safety

# Browsers accept a cookie with this prefix from this host only, and over HTTPS.
_COOKIE_PREFIX = "__Host-" if BEHIND_HTTPS else ""
SESSION_COOKIE_NAME = f"{_COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{_COOKIE_PREFIX}csrftoken"
BROWSER_COOKIE_NAME = f"{_COOKIE_PREFIX}parley_browser"  # see sign_in_attempts
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True  # scripts read the token from the form instead
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_HTTPS
if BEHIND_HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz)$"]  # probes use plain HTTP
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-src": ["'self'"],  # sandboxed: diagrams and artifacts
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 20 * 1024 * 1024  # bytes of one request's body

# Sign-in attempts, see conversations/access/sign_in_attempts.py

AXES_HANDLER = "conversations.access.sign_in_attempts.AttemptHandler"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 5  # the fifth failure delays the next attempt
AXES_COOLOFF_TIME = timedelta(days=1)  # after which failures are forgotten
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_ENABLE_ACCESS_FAILURE_LOG = True
AXES_CLIENT_IP_CALLABLE = "conversations.access.sign_in_attempts.sign_in_address"
AXES_USERNAME_CALLABLE = "conversations.access.sign_in_attempts.axes_username"
AXES_LOCKOUT_CALLABLE = "conversations.access.sign_in_attempts.refusal"
AXES_SENSITIVE_PARAMETERS = [
    *("username", "ip_address", "csrfmiddlewaretoken"),
    *("old_password", "new_password1", "new_password2"),  # on the account page
]
AXES_ENABLE_ADMIN = False  # conversations/admin/sign_in_attempts.py replaces it
AXES_VERBOSE = False

# REST

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "conversations.api.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "conversations.api.authentication.TokenPermission",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["conversations.api.authentication.TokenThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    # drf-spectacular puts the requested version into the name of the schema file.
    "ALLOWED_VERSIONS": ["1"],
    "EXCEPTION_HANDLER": "conversations.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Parley",
    "DESCRIPTION": "Conversations with every language model, in one format.",
    "VERSION": "0.1.0",
    # What most generators of clients read without a warning. The gateway's document
    # is 3.1, as the standard's schemas are.
    "OAS_VERSION": "3.0.3",
    "COMPONENT_SPLIT_REQUEST": True,
    "SERVERS": [{"url": "/", "description": "This server"}],
    "LICENSE": {"name": "MIT", "url": "https://opensource.org/license/mit"},
    "SERVE_INCLUDE_SCHEMA": False,
    "DEFAULT_GENERATOR_CLASS": "conversations.api.openapi_generator.Generator",
    "POSTPROCESSING_HOOKS": [
        "conversations.api.schema.widen_optional_choices",
        "drf_spectacular.hooks.postprocess_schema_enums",
        "conversations.api.schema.complete",
        "conversations.requests.schemas.with_headers",
    ],
    "ENUM_NAME_OVERRIDES": {
        "ToolCallState": "conversations.models.ToolCall.State",
        "ShareKind": "conversations.models.ShareLink.Kind",
        "QuestionState": "conversations.models.Question.State",
    },
}

# The first start

ADMIN_PASSWORD = env.text("PARLEY_ADMIN_PASSWORD", "")  # "": a random one
ENABLE_DEMO = env.flag("ENABLE_DEMO", True)
_PROVIDERS = find_all_providers(ADDED_APPS, "PARLEY_APPS")
DISABLED_PROVIDERS = read_disabled_providers(env, _PROVIDERS)
ACCOUNTS = read_accounts(env, _PROVIDERS, DISABLED_PROVIDERS)
LLM_TEMPERATURE = env.number("LLM_TEMPERATURE", 0, 2)

# Models and turns

SYSTEM_PROMPT = env.text("SYSTEM_PROMPT", "")
#: Whether a model writes the titles of conversations; else they are the first words.
AUTO_TITLES = env.flag("AUTO_TITLES", True)
TRANSCRIPTION_MODEL = env.text("TRANSCRIPTION_MODEL", "")  # public name; "": none
DICTATION_MAX_SIZE = env.count("DICTATION_MAX_SIZE", 10_000_000)  # bytes
DICTATION_MAX_SECONDS = env.count("DICTATION_MAX_SECONDS", 300)
TITLE_MODEL = env.text("TITLE_MODEL", "")  # public name; "": the conversation's model

LLM_CONNECT_TIMEOUT = env.seconds("LLM_CONNECT_TIMEOUT", 10)
LLM_FIRST_BYTE_TIMEOUT = env.seconds("LLM_FIRST_BYTE_TIMEOUT", 120)
LLM_IDLE_TIMEOUT = env.seconds("LLM_IDLE_TIMEOUT", 120)  # between two chunks
LLM_TOTAL_TIMEOUT = env.seconds("LLM_TOTAL_TIMEOUT", 1800)
LLM_MAX_CONNECTIONS = env.count("LLM_MAX_CONNECTIONS", 2000)
LLM_CONNECTION_WAIT = env.seconds("LLM_CONNECTION_WAIT", 2)  # for a free connection
LLM_KEY_WAIT = env.seconds("LLM_KEY_WAIT", 2)  # for a key, while all are resting

#: Environment variables and folders that a provider's key may name as its place.
KEY_VARIABLES = env.words("KEY_VARIABLES", ["*_API_KEY"])
KEY_FOLDERS = env.words("KEY_FOLDERS", ["/run/secrets"])

#: Calls that may correct a structured answer that does not fit its schema.
STRUCTURED_OUTPUT_CORRECTIONS = env.limit("STRUCTURED_OUTPUT_CORRECTIONS", 1)

TURN_CONCURRENCY = env.count("TURN_CONCURRENCY", 1000)  # concurrent turns of a process
TURN_MAX_STEPS = env.count("TURN_MAX_STEPS", 10)
TURN_DEADLINE = env.seconds("TURN_DEADLINE", 3600)
#: Turns that a message of a user may cause, its own included.
MAX_TURNS_PER_MESSAGE = env.count("MAX_TURNS_PER_MESSAGE", 10)
#: USD for these turns; 0: no limit.
MAX_COST_PER_MESSAGE = env.number("MAX_COST_PER_MESSAGE", 0, 1e6, 10)
TURN_LEASE = 6.0  # seconds until a claim expires without renewal
TURN_MAX_CLAIMS = 5
TOOL_TIMEOUT = env.seconds("TOOL_TIMEOUT", 30)
BACKGROUND_TOOL_TIMEOUT = env.seconds("BACKGROUND_TOOL_TIMEOUT", 24 * 3600)
QUESTION_EXPIRES = env.seconds("QUESTION_EXPIRES", 3 * 24 * 3600)
MCP_STDIO_SERVERS = env.mcp_servers("MCP_STDIO_SERVERS")  # path of a JSON file
PUBLIC_URL = env.url("PUBLIC_URL")  # address of this server on the internet
MAX_INPUT_SIZE = env.count("MAX_INPUT_SIZE", 1_000_000)  # bytes of one message
#: Bytes of model output in a turn.
MAX_ANSWER_SIZE = env.count("MAX_ANSWER_SIZE", 8_000_000)
#: Percent of the room for a prompt; above it earlier messages are summarised. 0: never.
COMPACTION_THRESHOLD: float = env.number("COMPACTION_THRESHOLD", 0, 95, 75) or 0
DRAIN_GRACE = env.seconds("DRAIN_GRACE", 10)
MAX_UPLOAD_SIZE = env.count("MAX_UPLOAD_SIZE", 20_000_000)  # bytes of one file
MAX_UPLOAD_COUNT = env.count("MAX_UPLOAD_COUNT", 10)  # files of one message
IMPORT_MAX_SIZE = env.count("IMPORT_MAX_SIZE", 200_000_000)  # bytes of one import
#: Bytes of the body of any request, checked while it is received.
MAX_REQUEST_SIZE = max(
    DATA_UPLOAD_MAX_MEMORY_SIZE,
    MAX_UPLOAD_SIZE * MAX_UPLOAD_COUNT + 1_000_000,  # and the other form fields
    IMPORT_MAX_SIZE + 1_000_000,
)
UPLOAD_QUOTA = env.count("UPLOAD_QUOTA", 1_000_000_000)  # bytes of all files of a user
#: Bytes of a WebSocket message. JSON may escape a byte of text as six (\u00xx). The
#: application checks MAX_INPUT_SIZE itself, so that the user gets an error message.
MAX_WEBSOCKET_MESSAGE = 6 * MAX_INPUT_SIZE
DAPHNE_WEBSOCKET_MAX_MESSAGE_SIZE = MAX_WEBSOCKET_MESSAGE
DAPHNE_WEBSOCKET_MAX_FRAME_SIZE = MAX_WEBSOCKET_MESSAGE
# Limits per minute for a signed-in user; 0: no limit. Access tokens have their own.
USER_REQUESTS_PER_MINUTE = env.limit("USER_REQUESTS_PER_MINUTE", 600)
USER_TOKENS_PER_MINUTE = env.limit("USER_TOKENS_PER_MINUTE", 2_000_000)
USER_BYTES_PER_MINUTE = env.limit("USER_BYTES_PER_MINUTE", 200_000_000)
#: The widest audience of links to conversations; see conversations/access/sharing.py.
SHARE_LINKS = env.choice(
    "SHARE_LINKS", "signed_in", ["off", "group", "signed_in", "public"]
)
DELETED_RETENTION_DAYS = env.days("DELETED_RETENTION_DAYS", 30)  # 0: never delete
RETENTION_DAYS = env.days("RETENTION_DAYS", 0)  # of model and tool calls; 0: no limit
# Requests and responses of providers whose rows say so, for staff.
EXCHANGE_RETENTION_DAYS = env.days("EXCHANGE_RETENTION_DAYS", 7)  # 0: no limit
EXCHANGE_MAX_SIZE = env.count("EXCHANGE_MAX_SIZE", 262_144)  # bytes of each body
SHOW_COSTS = env.flag("SHOW_COSTS", True)  # to users, beside their answers
SYNC_MODELS = env.flag("SYNC_MODELS", False)  # fetch providers' model lists daily

# Logging: one line an event, never a key, a prompt or a body

LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"])
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name} {message}", "style": "{"}
    },
    "filters": {
        "tracebacks": {"()": "project.startup.log_filter.TracebackFilter"},
        "tokens": {"()": "project.startup.log_filter.AddressTokenFilter"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["tracebacks"],
        }
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        name: {"level": LOG_LEVEL}
        for name in ("llm", "tools", "conversations", "project")
    }
    # axes masks user names; conversations/access/sign_in_attempts.py logs them.
    | {"axes": {"level": "ERROR"}, "django.request": {"filters": ["tokens"]}},
}
ACCESS_LOG = env.flag("ACCESS_LOG", False)
