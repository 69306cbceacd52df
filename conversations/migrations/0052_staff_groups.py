"""Groups of staff, each with the rights of its task, and one for users.

A group of that name that exists already keeps its rights.
"""

from django.db import migrations

from conversations.migrations._rights import create_groups


class Migration(migrations.Migration):

    dependencies = [
        ("conversations", "0051_scope_of_approvals"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(create_groups, migrations.RunPython.noop)]
