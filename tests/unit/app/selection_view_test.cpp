// The selection under all of its names: every line says where, and leads there.
#include "app/views/selection_view.h"

#include <gtest/gtest.h>

#include "tests/unit/app/stepped_session.h"

namespace attnscope {
namespace selection_view_test {

const SelectionPart* part_of(const SelectionView& view, const std::string& title) {
  for (const SelectionPart& part : view.parts) {
    if (part.title.starts_with(title)) return &part;
  }
  return nullptr;
}

const SelectionLine* line_of(const SelectionPart& part, const std::string& label) {
  for (const SelectionLine& line : part.lines) {
    if (line.label == label) return &line;
  }
  return nullptr;
}

class SelectionViews : public SteppedSession {
 protected:
  References references() const override { return References::kSim; }

  SelectionView view(const Selection& selection, Place cursor = {0, 1, AS_OP_SPARSE_ATTENTION},
                     const char* tap = nullptr) const {
    cursor.step = step_->step;
    const OpTrace* op = step_->find(cursor.layer, cursor.op);
    const TapCopy* copy = op != nullptr && tap != nullptr ? op->tap(tap) : nullptr;
    return selection_view({*info_, *step_, cursor, selection, row_, op, copy});
  }
};

TEST_F(SelectionViews, ARequestWithoutATokenInTheStepDoesNotTakeSomebodyElses) {
  const std::int32_t looked_at = step_->request_of(row_);
  Selection selection;
  for (const RequestView& r : step_->requests) {
    if (r.request.id != looked_at) selection.request = r.request.id;
  }
  ASSERT_NE(selection.request, looked_at);
  const SelectionView v = view(selection);
  EXPECT_TRUE(v.parts.empty());
  EXPECT_NE(v.sentence.find("computes no token in this step"), std::string::npos) << v.sentence;
  EXPECT_NE(v.sentence.find(info_->request_names[static_cast<std::size_t>(looked_at)]),
            std::string::npos);
}

TEST_F(SelectionViews, ATokenNamesItsRowInEveryGroup) {
  Selection selection;
  selection.position = position_;
  const SelectionView v = view(selection);
  const SelectionPart* token = part_of(v, "Token");
  ASSERT_NE(token, nullptr);
  for (const TokenSlot& slot : slots_of_token(*info_, *request_, position_)) {
    const CacheGroup& group = info_->layout.groups[static_cast<std::size_t>(slot.group)];
    const std::string label =
        slot.ratio == 1 ? group.name : group.name + " 1/" + std::to_string(slot.ratio);
    const SelectionLine* line = line_of(*token, label);
    ASSERT_NE(line, nullptr) << label;
    ASSERT_FALSE(line->null) << label;
    EXPECT_NE(line->text.find("slot " + std::to_string(slot.slot)), std::string::npos);
    ASSERT_TRUE(line->to);
    EXPECT_EQ(line->to->block, slot.block);
    EXPECT_EQ(line->to->row, slot.row);
    EXPECT_EQ(line->to->group, slot.group);
  }
  const SelectionLine* window = line_of(*token, "window");
  ASSERT_NE(window, nullptr);
  EXPECT_NE(window->text.find("slot 128 of 128"), std::string::npos) << window->text;
  EXPECT_NE(v.sentence.find("head 0 gives it"), std::string::npos) << v.sentence;
}

TEST_F(SelectionViews, ATokenThatLeftTheWindowIsNullThereAndSeenThroughEntries) {
  Selection selection;
  selection.position = 2;
  const SelectionView v = view(selection);
  const SelectionPart* token = part_of(v, "Token 2");
  ASSERT_NE(token, nullptr);
  const SelectionLine* swa = line_of(*token, "SWA-a");
  ASSERT_NE(swa, nullptr);
  EXPECT_TRUE(swa->null);
  EXPECT_FALSE(swa->to);
  EXPECT_NE(swa->text.find("left the window"), std::string::npos);
  EXPECT_TRUE(line_of(*token, "window")->null);
  const SelectionLine* entry = line_of(*token, "entry 1/4");
  ASSERT_NE(entry, nullptr);
  ASSERT_TRUE(entry->to);
  EXPECT_EQ(entry->to->entry, 0);
  EXPECT_NE(v.sentence.find("through 3 entries"), std::string::npos) << v.sentence;
}

TEST_F(SelectionViews, AnEntryHasItsTokensItsRankAndItsRow) {
  Selection selection;
  selection.pick_entry(0, 4, 3);
  const SelectionView v = view(selection);
  const SelectionPart* entry = part_of(v, "Entry 3");
  ASSERT_NE(entry, nullptr);
  EXPECT_NE(line_of(*entry, "pools")->text.find("tokens 8-15"), std::string::npos);
  EXPECT_EQ(line_of(*entry, "pools")->to->position, 8);
  const TokenSlot slot = slot_of_entry(*info_, *request_, 4, 3);
  EXPECT_EQ(line_of(*entry, "row")->to->block, slot.block);
  EXPECT_NE(line_of(*entry, "score")->text.find("rank "), std::string::npos);
  EXPECT_EQ(line_of(*entry, "choice")->text.substr(0, 8), "selected") << "all fit: none is left";
  selection.pick_entry(0, 4, 100000);
  EXPECT_TRUE(line_of(*part_of(view(selection), "Entry 100"), "score")->null);
}

TEST_F(SelectionViews, AnEntryKeepsItsRatioAndItsRequest) {
  // Whatever layer the cursor goes to: one of 128 tokens stays one.
  Selection selection;
  selection.pick_entry(0, 128, 1);
  for (const Place cursor : {Place{0, 1, AS_OP_SPARSE_ATTENTION}, Place{0, 2, AS_OP_WO_A}}) {
    const SelectionView v = view(selection, cursor);
    const SelectionPart* entry = part_of(v, "Entry 1 of long, one a 128 tokens");
    ASSERT_NE(entry, nullptr) << v.parts.back().title;
    EXPECT_NE(line_of(*entry, "pools")->text.find("tokens 128-255"), std::string::npos);
    EXPECT_EQ(line_of(*entry, "row")->to->block, slot_of_entry(*info_, *request_, 128, 1).block);
    EXPECT_EQ(line_of(*entry, "score"), nullptr) << "nobody scores it";
  }
  // Nor does it become another request's when that one is looked at.
  const RequestView& other = step_->requests[1];
  selection.pick_entry(other.request.id, 4, 2);
  const SelectionView v = view(selection);
  const SelectionPart* entry = part_of(v, "Entry 2 of " + other.request.name);
  ASSERT_NE(entry, nullptr);
  const std::string text = text_of(other.request, tokens_of_entry(info_->layout, 4, 2), 60);
  EXPECT_NE(line_of(*entry, "pools")->text.find(text), std::string::npos)
      << line_of(*entry, "pools")->text;
  EXPECT_EQ(line_of(*entry, "pools")->to->request, other.request.id);
}

TEST_F(SelectionViews, ABlockHasItsOwnerAndItsReaders) {
  Selection selection;
  const auto slots = slots_of_token(*info_, *request_, position_);
  selection.block = slots.back().block;
  SelectionView v = view(selection);
  const SelectionPart* block = part_of(v, "Block");
  ASSERT_NE(block, nullptr);
  EXPECT_NE(line_of(*block, "state")->text.find("long"), std::string::npos);
  EXPECT_TRUE(line_of(*block, "state")->here);
  const auto readers = readers_of_block(*info_, *step_, selection.block);
  EXPECT_EQ(line_of(*block, "read by")->null, readers.empty());
  selection.block = 0;
  EXPECT_TRUE(part_of(view(selection), "Block 0")->lines.front().null);
  selection.block = step_->free_list.front();
  EXPECT_NE(part_of(view(selection), "Block")->lines.front().text.find("in turn 1 of"),
            std::string::npos);
  selection.block = 1'000'000;
  EXPECT_EQ(part_of(view(selection), "Block")->lines.front().text, "not in this pool");
}

TEST_F(SelectionViews, AnElementHasBothOfItsValues) {
  Selection selection;
  selection.tap = "o";
  selection.element = {row_, 1, 5};
  const SelectionView v = view(selection, {0, 1, AS_OP_SPARSE_ATTENTION}, "o");
  const SelectionPart* element = part_of(v, "o:");
  ASSERT_NE(element, nullptr);
  EXPECT_NE(element->title.find("head 1, dim 5"), std::string::npos) << element->title;
  ASSERT_NE(line_of(*element, "ref.sim"), nullptr);
  EXPECT_FALSE(line_of(*element, "ref.sim")->null);
  // Another tap's element, one beyond the shape, one of another rank: no part, no crash.
  selection.tap = "lse";
  EXPECT_EQ(part_of(view(selection, {0, 1, AS_OP_SPARSE_ATTENTION}, "o"), "o:"), nullptr);
  selection.tap = "o";
  selection.element = {row_, 1, 500000};
  EXPECT_EQ(part_of(view(selection, {0, 1, AS_OP_SPARSE_ATTENTION}, "o"), "o:"), nullptr);
  selection.element = {1};
  EXPECT_EQ(part_of(view(selection, {0, 1, AS_OP_SPARSE_ATTENTION}, "o"), "o:"), nullptr);
}

TEST_F(SelectionViews, EveryLineLeadsToASelectionThatNamesItAgain) {
  Selection selection;
  selection.position = position_;
  selection.pick_entry(0, 4, 3);
  selection.block = slots_of_token(*info_, *request_, position_).front().block;
  int followed = 0;
  for (const SelectionPart& part : view(selection).parts) {
    for (const SelectionLine& line : part.lines) {
      if (!line.to) continue;
      EXPECT_FALSE(view(*line.to).parts.empty()) << part.title << ": " << line.label;
      ++followed;
    }
  }
  EXPECT_GT(followed, 8);
  selection.request = 77;
  EXPECT_NE(view(selection).sentence.find("Request 77 is not running"), std::string::npos);
}

}  // namespace selection_view_test
}  // namespace attnscope
