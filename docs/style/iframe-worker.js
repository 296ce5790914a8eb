// Browsers start no worker for a page that is opened from a folder (file://). There, this class takes the
// place of Worker, and the search runs in a hidden frame. The offline plugin of mkdocs-material would
// otherwise fetch such a script from the network.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.window = frame.contentWindow;
    this.window.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.window.importScripts = (...urls) =>
      urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
    this.loaded = this.load(url);
  }

  load(url) {
    return new Promise((resolve, reject) => {
      const script = this.window.document.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      this.window.document.head.append(script);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.window.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.window.frameElement.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
