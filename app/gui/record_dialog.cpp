#include "app/gui/record_dialog.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "app/gui/text_input.h"
#include "app/gui/widgets.h"
#include "app/text/folder_list.h"
#include "app/text/format.h"

namespace attnscope::gui {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLevels[] = {"summary", "tables", "full"};
constexpr const char* kHolds[] = {
    "Results, events and times; statistics and a checksum of every tap.",
    "Also block tables, indices, lengths and slots, and who holds which block.",
    "Also the values of all taps, every row, with the reference's beside them."};

// Bytes that are free where a folder will lie; nothing: not known.
std::optional<std::uint64_t> free_bytes(const std::string& folder) {
  std::error_code code;
  fs::path at = fs::absolute(folder, code).parent_path();
  if (code) return std::nullopt;
  const fs::space_info space = fs::space(at, code);
  if (code) return std::nullopt;
  return space.available;
}

}  // namespace

void RecordDialog::register_commands(Ui& ui) {
  Workbench& bench = ui.bench;
  ui.commands.add(
      {.id = "capture.record",
       .title = "Record capture ..",
       .group = "File",
       .help = "Runs the scenario from its start beside the session and keeps what it "
               "computed; summary:FOLDER, tables:FOLDER or full:FOLDER chooses how "
               "much. Without a folder, asks.",
       .argument = "[LEVEL:]FOLDER",
       .run = [this, &ui](std::string_view value) -> Result<void> {
         if (value.empty()) {
           if (ui.bench.no_scenario()) return *ui.bench.no_scenario();
           start(ui);
           return {};
         }
         CaptureLevel level = CaptureLevel::kTables;
         if (const auto colon = value.find(':'); colon != std::string_view::npos) {
           if (const auto named = capture_level_by_name(value.substr(0, colon))) {
             level = *named;
             value.remove_prefix(colon + 1);
           }
         }
         if (value.empty()) {
           return usage_error("capture.record: no folder", "such as capture.record=full:run.acap");
         }
         return ui.bench.record(std::string(value), level);
       },
       // A capture whose scenario is not here says so when it is asked for.
       .enabled =
           [&bench] { return bench.no_scenario() || !bench.setup().scenario.requests.empty(); },
       .why_disabled = "no scenario is open"});
}

void RecordDialog::start(const Ui& ui) {
  folder_ = free_capture_name(ui.bench.setup().scenario.name);
  error_.clear();
  estimate_.reset();
  estimated_level_ = -1;
  dialog_.open();
}

// On a thread of its own: a step is written for it.
void RecordDialog::estimate(const Ui& ui) {
  using namespace std::chrono_literals;
  if (estimating_.valid() && estimating_.wait_for(0s) == std::future_status::ready) {
    estimate_ = estimating_.get();
    estimated_level_ = estimating_level_;
  }
  if (estimating_.valid() || estimated_level_ == level_ || ui.bench.snapshot() == nullptr) return;
  estimating_level_ = level_;
  estimating_ =
      std::async(std::launch::async, [snapshot = ui.bench.shared_snapshot(),
                                      scenario = ui.bench.setup().scenario, level = level_] {
        return estimate_recording(*snapshot, scenario, static_cast<CaptureLevel>(level));
      });
}

void RecordDialog::draw_size() const {
  if (!estimate_ || estimated_level_ != level_) {
    dim("Estimating its size ..");
    return;
  }
  if (!*estimate_) {
    dim("Its size is not known: " + estimate_->error().text());
    return;
  }
  const RecordEstimate& size = **estimate_;
  const auto room = free_bytes(folder_);
  const std::string text = fmt::format(
      "About {}, {}{}.", plural(size.steps, "step", "steps"),
      format_bytes(static_cast<double>(size.bytes)),
      room ? fmt::format("; {} are free there", format_bytes(static_cast<double>(*room))) : "");
  if (room && size.bytes > *room) {
    caution(text + " It will not fit.");
  } else {
    ImGui::TextWrapped("%s", text.c_str());
  }
}

void RecordDialog::record(Ui& ui) {
  const auto ok = ui.commands.run(fmt::format("capture.record={}:{}", kLevels[level_], folder_));
  if (ok) {
    dialog_.close();
  } else {
    error_ = ok.error().text();
  }
}

void RecordDialog::draw(Ui& ui) {
  if (!dialog_.begin("Record capture", {560, 0})) return;
  estimate(ui);
  ImGui::TextWrapped(
      "The scenario runs from its start beside the session, on the lanes that are chosen. The "
      "status "
      "bar shows how far it is; Escape stops it and keeps the steps that are whole.");
  ImGui::Spacing();
  segmented("##level", &level_, kLevels, 3);
  ImGui::TextWrapped("%s", kHolds[level_]);
  ImGui::Spacing();
  push_field_style();
  ImGui::SetNextItemWidth(-FLT_MIN);
  const bool entered = text_input("##folder", folder_, "folder of the capture",
                                  ImGuiInputTextFlags_EnterReturnsTrue);
  pop_field_style();
  draw_size();
  if (!error_.empty()) paragraph(error_, Verdict::kWrong);
  ImGui::Spacing();
  ImGui::BeginDisabled(folder_.empty());
  const bool pressed = ImGui::Button("Record##record", {px(120), 0});
  ImGui::EndDisabled();
  if ((pressed || entered) && !folder_.empty()) record(ui);
  ImGui::SameLine();
  if (ImGui::Button("Cancel##record", {px(120), 0})) dialog_.close();
  dialog_.end();
}

std::unique_ptr<Overlay> make_record_dialog() { return std::make_unique<RecordDialog>(); }

}  // namespace attnscope::gui
