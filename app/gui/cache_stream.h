// The cache panel's tab of another engine's cache events: a slider over the batches, the prefix map
// after the chosen one.
#pragma once

#include <memory>

#include "app/common/kv_stream.h"
#include "app/common/views/stream_view.h"
#include "app/gui/data_table.h"
#include "app/gui/panel.h"

namespace attnscope::gui {

class CacheStream {
 public:
  void register_commands(Ui& ui);
  void draw(Ui& ui);

 private:
  void take(const std::shared_ptr<const KvStream>& stream);
  void go_to(std::int64_t batch);
  void draw_slider(Ui& ui);

  std::shared_ptr<const KvStream> stream_;
  std::unique_ptr<KvStreamMap> map_;
  StreamView view_;
  std::uint64_t version_ = 0;
  DataTable table_;
};

}  // namespace attnscope::gui
