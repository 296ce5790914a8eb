"""What `ctxlab.sessions` offers; `__init__.py` loads each from here when it is first asked for."""

from .background_summaries import (
    Summaries as Summaries,
)
from .base import (
    Hit as Hit,
)
from .base import (
    Library as Library,
)
from .base import (
    Plan as Plan,
)
from .base import (
    Resume as Resume,
)
from .base import (
    Session as Session,
)
from .base import (
    Store as Store,
)
from .base import (
    TitleChange as TitleChange,
)
from .jsonl.store import (
    ChunkedStore as ChunkedStore,
)
from .log_library import (
    Logs as Logs,
)
from .open import (
    open_library as open_library,
)
from .open import (
    open_store as open_store,
)
from .resume_window import (
    Caps as Caps,
)
from .semantic_search import (
    search_meaning as search_meaning,
)
from .sqlite.store import (
    WorkspaceStore as WorkspaceStore,
)
from .table_of_contents import (
    Contents as Contents,
)
from .table_of_contents import (
    ContentsEntry as ContentsEntry,
)
from .table_of_contents import (
    Interaction as Interaction,
)
from .table_of_contents import (
    InteractionBrief as InteractionBrief,
)
from .table_of_contents import (
    InteractionWithContext as InteractionWithContext,
)
