"""What `ctxlab.sessions` offers; `__init__.py` loads each from here when it is first asked for."""

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
from .chunks.store import (
    ChunkedStore as ChunkedStore,
)
from .contents import (
    Contents as Contents,
)
from .contents import (
    ContentsEntry as ContentsEntry,
)
from .contents import (
    Interaction as Interaction,
)
from .contents import (
    InteractionBrief as InteractionBrief,
)
from .contents import (
    InteractionWithContext as InteractionWithContext,
)
from .logs import (
    Logs as Logs,
)
from .meaning import (
    search_meaning as search_meaning,
)
from .opening import (
    open_library as open_library,
)
from .opening import (
    open_store as open_store,
)
from .summaries import (
    Summaries as Summaries,
)
from .window import (
    Caps as Caps,
)
from .workspace.store import (
    WorkspaceStore as WorkspaceStore,
)
