// The cache panel's tab of another engine's cache events: a slider over the batches, the prefix map
// after the chosen one.
#pragma once

#include <future>
#include <memory>

#include "app/gui/data_table.h"
#include "app/gui/panel.h"
#include "app/views/kv_stream.h"
#include "app/views/stream_view.h"

namespace attnscope::gui {

class CacheStream {
 public:
  void register_commands(Ui& ui);
  void draw(Ui& ui);
  // Whether a map is being made; draw() takes it.
  bool animating() const { return making_.valid(); }

 private:
  struct Shown {
    KvStreamMap map;
    StreamView view;
  };
  void take(const std::shared_ptr<const KvStream>& stream);
  // A stream may be long: the map after a batch is made on a thread.
  void make();
  void draw_slider(Ui& ui);

  std::shared_ptr<const KvStream> stream_;
  std::unique_ptr<Shown> shown_;                  // none: the first one is being made
  std::int64_t wanted_ = -1;                      // batch
  std::future<std::unique_ptr<Shown>> making_;    // null: there was no memory for it
  std::int64_t being_made_ = -2, given_up_ = -2;  // batches; -2: none
  std::uint64_t version_ = 0;
  DataTable table_;
};

}  // namespace attnscope::gui
