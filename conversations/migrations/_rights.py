"""Rights that migrations give to the shipped groups."""

from __future__ import annotations

VIEW, CHANGE, ALL = ("view",), ("view", "change"), ("view", "add", "change", "delete")

#: Permissions of each group: `app.model`, and the actions on its rows.
GROUPS = {
    "User": {},
    "Operator": {
        "llm.provider": ALL,
        "llm.apikey": ALL,
        "llm.languagemodel": (*ALL, "test"),
        "llm.modelprice": ALL,
        "llm.modelprobe": ALL,
        "llm.modelcall": VIEW,
        "llm.cachedanswer": ("view", "delete"),
        "tools.mcpserver": CHANGE,
        "tools.tool": CHANGE,
        "conversations.maintenance": ("change",),
        "conversations.turn": CHANGE,
        "conversations.toolcall": VIEW,
        "conversations.preset": VIEW,
    },
    "Tool author": {
        "tools.tool": (*ALL, "dry_run"),
        "tools.mcpserver": ALL,
        "tools.declaredtool": CHANGE,
        "tools.tooluse": VIEW,
        "conversations.contextsource": (*ALL, "try"),
        "conversations.preset": ALL,
    },
    "Billing": {
        "llm.modelcall": VIEW,
        "llm.modelprice": ALL,
        "llm.languagemodel": VIEW,
        "llm.usagesum": ("view_usage",),
        "conversations.usagelimit": ALL,
        "conversations.limitraise": ALL,
        "conversations.accesstoken": VIEW,
        "auth.user": VIEW,
        "auth.group": VIEW,
    },
    "Auditor": {
        "audit.auditevent": ("view", "export"),
        "llm.provider": VIEW,
        "llm.apikey": VIEW,
        "llm.languagemodel": VIEW,
        "llm.modelcall": VIEW,
        "llm.usagesum": ("view_usage",),
        "tools.tool": VIEW,
        "tools.mcpserver": VIEW,
        "conversations.accesstoken": VIEW,
        "conversations.usagelimit": VIEW,
        "conversations.limitraise": VIEW,
        "conversations.preset": VIEW,
        "conversations.sharelink": VIEW,
        "auth.user": VIEW,
        "auth.group": VIEW,
    },
    "Support": {
        "auth.user": VIEW,
        "conversations.turn": (*CHANGE, "inspect"),
        "conversations.conversation": VIEW,
        "conversations.item": VIEW,
        "conversations.toolcall": VIEW,
        "conversations.question": VIEW,
        "conversations.usagelimit": VIEW,
        "conversations.limitraise": ("view", "add"),
        "llm.modelcall": VIEW,
        "llm.languagemodel": VIEW,
    },
}

#: Names of permissions that are no usual ones, as the models have them.
NAMES = {
    "dry_run_tool": "Can try a tool as any user",
    "export_auditevent": "Can export the audit log",
    "inspect_turn": "Can read other people's turns",
    "test_languagemodel": "Can send test prompts to models",
    "try_contextsource": "Can try a context source as any user",
    "view_usage": "Can see everybody's usage and its cost",
}


def create_groups(apps, schema_editor):
    groups = apps.get_model("auth", "Group").objects
    for name, rights in GROUPS.items():
        group, is_new = groups.get_or_create(name=name)
        if is_new:
            group.permissions.set(
                find_permission(apps, model, action)
                for model, actions in rights.items()
                for action in actions
            )


def find_permission(apps, model, action):
    """Django creates permissions after all migrations, and leaves this one then."""
    app_label, _, model_name = model.partition(".")
    types = apps.get_model("contenttypes", "ContentType").objects
    content_type, _ = types.get_or_create(app_label=app_label, model=model_name)
    codename = action if action == "view_usage" else f"{action}_{model_name}"
    permission, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=content_type,
        codename=codename,
        defaults={"name": NAMES.get(codename, f"Can {action} {model_name}")},
    )
    return permission


#: Group, and its actions on pools, which are those on models.
POOL_ACTIONS = {
    "Operator": ALL,
    "Billing": VIEW,
    "Auditor": VIEW,
    "Support": VIEW,
}


def add_rights(apps, schema_editor):
    groups = apps.get_model("auth", "Group").objects
    for group in groups.filter(name__in=POOL_ACTIONS):
        if group.permissions.filter(codename="view_languagemodel").exists():
            group.permissions.add(
                *(
                    find_permission(apps, model, action)
                    for model in ("llm.modelpool", "llm.poolmember")
                    for action in POOL_ACTIONS[group.name]
                )
            )


#: Group, and its actions on endpoints of webhooks and on what was sent to them.
WEBHOOK_ACTIONS = {
    "Operator": {
        "conversations.webhookendpoint": ALL,
        "conversations.delivery": CHANGE,
    },
    "Auditor": {
        "conversations.webhookendpoint": VIEW,
        "conversations.delivery": VIEW,
    },
    "Support": {
        "conversations.webhookendpoint": VIEW,
        "conversations.delivery": VIEW,
    },
}


def add_webhook_rights(apps, schema_editor):
    groups = apps.get_model("auth", "Group").objects
    for group in groups.filter(name__in=WEBHOOK_ACTIONS):
        if group.permissions.filter(codename="view_languagemodel").exists():
            group.permissions.add(
                *(
                    find_permission(apps, model, action)
                    for model, actions in WEBHOOK_ACTIONS[group.name].items()
                    for action in actions
                )
            )
