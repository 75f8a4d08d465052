// A scenario draft as a form: model, limits, requests, lanes. Each error stands below its field.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/panel.h"
#include "app/reports/scenario_needs.h"
#include "app/workbench/scenario_edit.h"

namespace attnscope::gui {

class ScenarioForm {
 public:
  explicit ScenarioForm(ScenarioEditor& editor) : editor_(editor) {}
  // errors: of the draft. needs: of the draft, nullptr where it has errors.
  void draw(const Ui& ui, const DraftErrors& errors, const ScenarioNeeds* needs);

 private:
  using Set = std::function<void(ScenarioDraft&, const std::string&)>;

  void draw_model(const ScenarioNeeds* needs);
  void draw_limits();
  void draw_serving();
  void pick(const char* id, std::span<const char* const> labels,
            std::span<const char* const> values, std::string ScenarioFile::*member);
  void draw_requests(const ScenarioNeeds* needs);
  void draw_request_list(const ScenarioNeeds* needs);
  void draw_request();
  void draw_prompt();
  void draw_lanes(const Ui& ui);
  bool lane_combo(const char* id, const std::string& shown, const std::vector<std::string>& lanes,
                  bool none, std::string& chosen) const;

  static bool begin_form(const char* id);
  static void label(const char* text, const char* help);
  void error_of(const std::string& place);
  void draw_other_errors() const;
  bool is_wrong(std::string_view prefix) const;
  // A field for typing; what is typed between focusing and leaving it is one step of undo.
  void typed(const std::string& place, const std::string& now, const Set& set, const char* hint);
  void file_row(const char* text, const char* help, const char* place,
                std::string ScenarioFile::*member, const char* hint = nullptr);
  void request_row(const char* text, const char* help, const char* key,
                   std::string RequestDraft::*member, const char* hint = nullptr);
  void choice(const std::string& place, const std::vector<std::string>& names,
              std::string ScenarioFile::*member, const char* fallback);
  void end_typing(const Set& set, bool edited, const std::string& text);

  ScenarioEditor& editor_;
  const DraftErrors* errors_ = nullptr;  // while drawing
  std::string field_;                    // text of the field that is being drawn
  std::set<std::string> places_;         // that fields of this frame have asked for
  std::vector<std::string> elsewhere_;   // errors that no field of the last frame has shown
  std::size_t selected_ = 0;             // request
  // The selected request's prompt, copied when the draft or the selection changes.
  std::string prompt_;
  std::size_t prompt_of_ = 0;
  std::uint64_t prompt_version_ = ~std::uint64_t{0};
  bool prompt_fits_ = false;
  // Lanes that hold each op, by op id, and those for all ops; asked for once.
  std::vector<as_op_id> ops_;  // those that a model runs
  std::vector<std::vector<std::string>> lanes_of_;
  std::vector<std::string> lanes_of_all_;
};

}  // namespace attnscope::gui
