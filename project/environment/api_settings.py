"""Settings of the libraries behind REST and SCIM, which depend on no variable."""

from __future__ import annotations

from typing import Any

REST_FRAMEWORK: dict[str, Any] = {
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
SPECTACULAR_SETTINGS: dict[str, Any] = {
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
SCIM_SERVICE_PROVIDER: dict[str, Any] = {
    "NETLOC": "localhost",  # not used: BASE_LOCATION_GETTER reads the request
    "USER_ADAPTER": "project.accounts.scim.resources.ScimUser",
    "GROUP_ADAPTER": "project.accounts.scim.resources.ScimGroup",
    "USER_FILTER_PARSER": "project.accounts.scim.lookups.UserFilter",
    "GROUP_FILTER_PARSER": "project.accounts.scim.lookups.GroupFilter",
    "BASE_LOCATION_GETTER": "project.accounts.scim.lookups.base_location",
    "GET_QUERYSET_POST_PROCESSOR_GETTER": "project.accounts.scim.lookups.filter_lists",
    "GET_OBJECT_POST_PROCESSOR_GETTER": "project.accounts.scim.lookups.filter_row",
    "SERVICE_PROVIDER_CONFIG_MODEL": "project.accounts.scim.capabilities.ServiceConfig",
    "AUTH_CHECK_MIDDLEWARE": "project.accounts.scim.authentication.ScimAccess",
    "AUTHENTICATION_SCHEMES": [
        {
            "type": "oauthbearertoken",
            "name": "Access token",
            "description": "An access token with the scope scim.",
        }
    ],
}
