#include "app/gui/cache_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "app/gui/command_group.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

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
        wanted_ = *batch - 1;
        return ui.commands.run("cache.tab=stream");
      },
      "BATCH");
}

void CacheStream::take(const std::shared_ptr<const KvStream>& stream) {
  if (stream == stream_) return;
  if (making_.valid()) making_.wait();
  making_ = {};
  given_up_ = -2;
  shown_.reset();
  stream_ = stream;
  wanted_ = static_cast<std::int64_t>(stream_->batches.size()) - 1;
}

void CacheStream::make() {
  if (making_.valid() && making_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    if (auto made = making_.get()) {
      shown_ = std::move(made);
      ++version_;
    } else {
      given_up_ = being_made_;
    }
  }
  if (making_.valid() || given_up_ == wanted_) return;
  if (shown_ && shown_->map.batch() == wanted_) return;
  being_made_ = wanted_;
  // The map that is shown goes on from where it is, in a copy.
  making_ =
      std::async(std::launch::async,
                 [stream = stream_, batch = wanted_,
                  from = shown_ ? shown_->map : KvStreamMap(stream_)]() -> std::unique_ptr<Shown> {
                   try {
                     auto made = std::make_unique<Shown>(Shown{from, {}});
                     made->map.seek(batch);
                     made->view = stream_view(*stream, made->map);
                     return made;
                   } catch (const std::bad_alloc&) {
                     return nullptr;
                   }
                 });
}

void CacheStream::draw_slider(Ui& ui) {
  auto at = static_cast<int>(wanted_ + 1);
  const auto last = static_cast<int>(stream_->batches.size());
  ImGui::SetNextItemWidth(std::max(px(60), ImGui::GetContentRegionAvail().x * 0.6f));
  if (ImGui::SliderInt("##batch", &at, 0, last, "after batch %d", ImGuiSliderFlags_AlwaysClamp)) {
    ui.run(fmt::format("cache.batch={}", at));
  }
  if (wanted_ < 0) return;
  const KvEventBatch& batch = stream_->batches[static_cast<std::size_t>(wanted_)];
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
  make();
  if (given_up_ == wanted_) {
    paragraph("There is not enough memory for the map after this batch; choose another one.");
    return draw_slider(ui);
  }
  if (!shown_) return paragraph("The map is being made ..");
  const StreamView& view = shown_->view;
  sentence(view.sentence);
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
    for (const StreamRow& r : view.rows) {
      table_.row({whole_cell(r.batch + 1),
                  {r.hash, r.fresh ? theme().accent : 0},
                  {r.parent},
                  {r.group},
                  whole_cell(r.prefix),
                  whole_cell(r.blocks),
                  {r.ends_with},
                  {r.where}},
                 key++);
    }
  }
  table_.draw("##stream", ImVec2(-1, -1), -1);
}

}  // namespace attnscope::gui
