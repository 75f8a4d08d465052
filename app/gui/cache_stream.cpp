#include "app/gui/cache_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/common/format.h"
#include "app/gui/command_group.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {

void CacheStream::register_commands(Ui& ui) {
  const CommandGroup file(ui.commands, "File");
  file.add(
      "file.open_events", "Open cache events ..",
      "Reads the stream of cache events that a serving engine published (JSON, JSON Lines or "
      "MessagePack).",
      "",
      [&ui](std::string_view value) -> Result<void> {
        if (value.empty()) return usage_error("file.open_events: names no file");
        if (auto begun = ui.bench.open_events(std::string(value)); !begun) return begun;
        return ui.commands.run("cache.tab=stream");
      },
      "FILE");
  const CommandGroup view(
      ui.commands, "View", [&ui] { return ui.bench.events() != nullptr; },
      "no stream of cache events is open");
  view.add(
      "cache.batch", "Cache events: batch ..", "Shows the map after a batch, counted from 1.", "",
      [this, &ui](std::string_view value) -> Result<void> {
        take(ui.bench.events());
        const auto last = static_cast<std::int64_t>(stream_->batches.size());
        auto batch = whole_value(value, "cache.batch", 0, last);
        if (!batch) return batch.error();
        go_to(*batch - 1);
        return ui.commands.run("cache.tab=stream");
      },
      "BATCH");
}

void CacheStream::take(const std::shared_ptr<const KvStream>& stream) {
  if (stream == stream_) return;
  stream_ = stream;
  map_ = std::make_unique<KvStreamMap>(stream_);
  go_to(static_cast<std::int64_t>(stream_->batches.size()) - 1);
}

void CacheStream::go_to(std::int64_t batch) {
  map_->seek(batch);
  view_ = stream_view(*stream_, *map_);
  ++version_;
}

void CacheStream::draw_slider(Ui& ui) {
  auto at = static_cast<int>(map_->batch() + 1);
  const auto last = static_cast<int>(stream_->batches.size());
  ImGui::SetNextItemWidth(std::max(px(60), ImGui::GetContentRegionAvail().x * 0.6f));
  if (ImGui::SliderInt("##batch", &at, 0, last, "after batch %d", ImGuiSliderFlags_AlwaysClamp)) {
    ui.run(fmt::format("cache.batch={}", at));
  }
  if (map_->batch() < 0) return;
  const KvEventBatch& batch = stream_->batches[static_cast<std::size_t>(map_->batch())];
  const double first = stream_->batches.front().time;
  ImGui::SameLine();
  dim(fmt::format("+{} s{}", format_number(batch.time - first),
                  batch.rank < 0 ? std::string() : fmt::format(", rank {}", batch.rank)));
}

void CacheStream::draw(Ui& ui) {
  if (ui.bench.events() == nullptr) {
    empty_state(ui,
                "No stream of cache events is open. \"Open cache events ..\" in the palette "
                "reads one that a serving engine published.");
    return;
  }
  take(ui.bench.events());
  sentence(view_.sentence);
  draw_slider(ui);
  table_.begin(version_);
  if (table_.stale()) {
    table_.columns(
        {{"batch", true, 0.5f, "That stored it."},
         {"key", false, 1.4f, "Hash of the prefix."},
         {"after", false, 1.4f, "Hash of the prefix before it; none: a request's first."},
         {"group", false, 0.6f},
         {"tokens", true, 0.6f, "Length of the prefix; empty: its beginning is not known."},
         {"blocks", true, 0.6f, "That hold it."},
         {"ends with", false, 1.6f, "Token ids."},
         {"where", false, 1.4f}});
    std::int64_t key = 0;
    for (const StreamRow& r : view_.rows) {
      const auto number = [](std::int64_t n) {
        return TableCell{n < 0 ? std::string() : std::to_string(n), 0, static_cast<double>(n),
                         true};
      };
      table_.row({number(r.batch + 1),
                  {r.hash, r.fresh ? theme().accent : 0},
                  {r.parent},
                  {r.group},
                  number(r.prefix),
                  number(r.blocks),
                  {r.ends_with},
                  {r.where}},
                 key++);
    }
  }
  table_.draw("##stream", ImVec2(-1, -1), -1);
}

}  // namespace attnscope::gui
