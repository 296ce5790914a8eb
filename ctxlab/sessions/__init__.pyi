"""Public names of ``ctxlab.sessions``; ``__init__.py`` loads each of them on first access."""

from .background_summaries import BackgroundSummarizer as BackgroundSummarizer
from .base import AgentPlan as AgentPlan
from .base import ResumeState as ResumeState
from .base import Session as Session
from .base import SessionLibrary as SessionLibrary
from .base import SessionStore as SessionStore
from .jsonl.store import JsonlStore as JsonlStore
from .log_library import LogLibrary as LogLibrary
from .open import open_library as open_library
from .open import open_store as open_store
from .resume_window import ResumeCaps as ResumeCaps
from .semantic_search import search_semantically as search_semantically
from .sqlite.store import SqliteStore as SqliteStore
from .table_of_contents import Contents as Contents
from .table_of_contents import ContentsEntry as ContentsEntry
from .table_of_contents import Interaction as Interaction
from .table_of_contents import InteractionBrief as InteractionBrief
from .table_of_contents import InteractionWithContext as InteractionWithContext
from .text_search import SearchHit as SearchHit
from .titles import TitleChange as TitleChange
