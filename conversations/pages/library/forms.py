"""Forms of the library: filters, folders and tags of a conversation."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db import IntegrityError, transaction
from django.utils.translation import gettext_lazy as _

from conversations.forms.folder_uploads import add_folder_file
from conversations.models import Conversation, Folder, Tag, ToolCall, Turn
from conversations.models.folder import MAX_FOLDERS
from conversations.pages.forms.file_field import FilesInput
from conversations.requests.bulk import TAGS
from conversations.search.filters import SearchFilters
from conversations.search.results import MAX_QUERY, MAX_START
from conversations.turns.attachments import UploadRefused
from conversations.turns.file_storage import FilesUnavailable
from llm import router
from llm.models import LanguageModel

_NOT_STORED = _("The file could not be stored just now. Send it again later.")

DAY = forms.DateInput(attrs={"type": "date"})


class FilterForm(forms.Form):
    """The search with its filters, as the page's address has them."""

    q = forms.CharField(
        label=_("Words"), required=False, max_length=MAX_QUERY, widget=forms.TextInput
    )
    model = forms.ChoiceField(label=_("Model"), required=False)
    folder = forms.ModelChoiceField(
        Folder.objects.none(),
        label=_("Folder"),
        required=False,
        empty_label=_("All"),
    )
    tool = forms.ChoiceField(label=_("Tool"), required=False)
    tag = forms.ChoiceField(label=_("Tag"), required=False)
    to = forms.DateField(label=_("To"), required=False, widget=DAY)
    archived = forms.ChoiceField(
        label=_("Archived"),
        required=False,
        choices=[("no", _("Without")), ("yes", _("With")), ("only", _("Only"))],
    )
    api = forms.ChoiceField(
        label=_("API"),
        required=False,
        help_text=_("Conversations that programs began"),
        choices=[("yes", _("With")), ("no", _("Without")), ("only", _("Only"))],
    )
    start = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_START, widget=forms.HiddenInput
    )

    def __init__(self, data: Any, *, user: Any) -> None:
        super().__init__(data)
        # `from` cannot be the name of an attribute.
        self.fields["from"] = forms.DateField(
            label=_("From"), required=False, widget=DAY
        )
        self.order_fields(
            ["q", "model", "tool", "folder", "tag", "from", "to", "archived", "api"]
        )
        folder = self.fields["folder"]
        assert isinstance(folder, forms.ModelChoiceField)
        folder.queryset = Folder.objects.of(user)
        self._choose("model", _models_of(user))
        self._choose("tool", _tools_of(user))
        self._choose("tag", Tag.objects.of(user).values_list("name", flat=True))

    def filters(self) -> SearchFilters:
        """The valid filters; an invalid one is named beside its field."""
        data = self.cleaned_data
        folder = data.get("folder")
        return SearchFilters(
            model=data.get("model") or "",
            since=data.get("from"),
            until=data.get("to"),
            folder=folder.pk if folder else None,
            tool=data.get("tool") or "",
            tag=data.get("tag") or "",
            archived=data.get("archived") or "no",
            api=data.get("api") or "yes",
        )

    @property
    def filter_fields(self) -> list[forms.BoundField]:
        return [field for field in self.visible_fields() if field.name != "q"]

    @property
    def is_filtered(self) -> bool:
        """Whether the page is to show the filters without a click."""
        nothing = SearchFilters(archived="no", api="yes")
        is_refused = any(name != "q" for name in self.errors)
        return is_refused or self.filters() != nothing

    def _choose(self, name: str, values: Any) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("All")), *((value, value) for value in values)]


def _models_of(user: Any) -> list[str]:
    """Public names of the models that the user's turns have used."""
    used = Turn.objects.of(user).exclude(language_model=None).order_by()
    rows = LanguageModel.objects.filter(pk__in=used.values("language_model").distinct())
    return sorted({row.public_name for row in rows.select_related("provider")})


def _tools_of(user: Any) -> list[str]:
    names = ToolCall.objects.of(user).order_by().values_list("name", flat=True)
    return sorted(names.distinct())


class FolderForm(forms.ModelForm):
    class Meta:
        model = Folder
        fields = ["name", "instructions", "language_model"]
        labels = {
            "name": _("Name"),
            "instructions": _("Instructions"),
            "language_model": _("Model"),
        }
        widgets = {
            "name": forms.TextInput(attrs={"autocomplete": "off"}),
            "instructions": forms.Textarea(attrs={"rows": 5, "dir": "auto"}),
        }

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user
        self.instance.owner = user
        field = self.fields["language_model"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = router.available(user).order_by("provider__name", "name")
        field.empty_label = str(_("The usual model"))
        field.help_text = _(
            "The usual model is the preset's, or else the default model."
        )

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        same = Folder.objects.of(self._user).filter(name=name)
        if same.exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(_("You have a folder of this name already."))
        return name

    def clean(self) -> dict[str, Any]:
        full = Folder.objects.of(self._user).count() >= MAX_FOLDERS
        if self.instance.pk is None and full:
            raise forms.ValidationError(
                _("You can have %(count)s folders; delete one that you do not need."),
                params={"count": MAX_FOLDERS},
            )
        return self.cleaned_data

    def save_once(self) -> Folder | None:
        """None, with an error, where another tab has just taken the name."""
        try:
            with transaction.atomic():
                saved: Folder = self.save()
                return saved
        except IntegrityError:
            self.add_error("name", _("You have a folder of this name already."))
        return None


class _Files(forms.FileField):
    """One file or more; whether a folder can have them is decided for each."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        one = super().clean
        return [one(each, initial) for each in data or [None]]


class FolderFileForm(forms.Form):
    file = _Files(
        label=_("Add files"),
        help_text=_(
            "Models read them with each message of the folder's conversations."
        ),
        allow_empty_file=True,
    )

    def add_to(self, folder: Folder) -> bool:
        """Add the files. False, with an error for each that was not added, if there is
        one. Raises FilesUnavailable before any was."""
        chosen, refused, added = self.cleaned_data["file"], [], 0
        for file in chosen:
            try:
                add_folder_file(folder, file)
                added += 1
            except UploadRefused as exc:
                refused.append(_with_name(file.name, str(exc)))
            except FilesUnavailable:
                if not added:
                    raise
                # The person must not send the others once more.
                refused.append(_with_name(file.name, str(_NOT_STORED)))
        if refused and len(chosen) > 1:
            words = _("Added %(added)s of %(count)s files, but not these:")
            self.add_error("file", words % {"added": added, "count": len(chosen)})
        for reason in refused:
            self.add_error("file", reason)
        return not refused


def _with_name(name: str, reason: str) -> str:
    return reason if f"“{name}”" in reason else f"{name}: {reason}"


class OrganiseForm(forms.ModelForm):
    """Folder and tags of one conversation."""

    labels = forms.CharField(
        label=_("Tags"),
        required=False,
        max_length=TAGS * 52,
        help_text=_("Separated by commas."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    class Meta:
        model = Conversation
        fields = ["folder"]
        labels = {"folder": _("Folder")}

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["folder"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = Folder.objects.of(user)
        field.empty_label = str(_("No folder"))
        names = self.instance.tags.values_list("name", flat=True)
        self.fields["labels"].initial = ", ".join(names)

    def clean_labels(self) -> list[str]:
        names = self.cleaned_data["labels"].split(",")
        names = [name for each in names if (name := " ".join(each.split()))]
        if len(names) > TAGS or any(len(name) > 50 for name in names):
            raise forms.ValidationError(
                _("Use %(count)s tags of 50 characters at most."),
                params={"count": TAGS},
            )
        return names

    def save(self, commit: bool = True) -> Any:
        self.instance.save(update_fields=["folder"])
        return self.instance
