#include "engine/session/persist/session_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>

#include "engine/io/byte_stream.h"
#include "engine/model/numbers.h"
#include "engine/session/persist/record_io.h"
#include "engine/session/rewind_points.h"
#include "engine/session/step/between_ops.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::string_view kMagic = "ASKEPT06";
// Of a program whose models drafted nothing; of one that did not say when its ops began; and of one
// whose profiles had version 1 and which did not count decisions either.
constexpr std::string_view kWithoutProposed = "ASKEPT05";
constexpr std::string_view kWithoutStarts = "ASKEPT04", kWithoutDecisions = "ASKEPT03";
constexpr std::size_t kKeptRewindPoints = 2;  // the newest ones go along, for steps back

struct Header {
  char magic[8];
  std::uint64_t bytes;  // of what follows
  std::uint64_t checksum;
};

// One block of a cache as a cache of its own.
as_cache block_cache(const CacheSpec& spec, const std::uint8_t* block) {
  return spec.cache(make_tensor(block + spec.offset, {1, spec.page_bytes}));
}

// Logical rows that were visited, by spec.
class Visited {
 public:
  Visited(const CacheLayout& layout, const AddressSpace& space) {
    for (const CacheSpec& spec : layout.specs) {
      rows_.emplace_back(to_size(space.rows(row_ratio(spec))), false);
    }
  }
  // True the first time.
  bool visit(std::size_t spec, std::int64_t row) {
    const bool seen = rows_[spec][to_size(row)];
    rows_[spec][to_size(row)] = true;
    return !seen;
  }

 private:
  std::vector<std::vector<bool>> rows_;
};

std::size_t history_row_bytes(const as_cache& cache) {
  return to_size(cache.data.shape[1] * as_dtype_size(cache.data.dtype));
}

std::uint8_t* history_row(const as_cache& cache, std::int64_t row) {
  return static_cast<std::uint8_t*>(cache.data.data) + to_size(row) * history_row_bytes(cache);
}

// Of the bytes of a block's group; what lies between pages is as poisoned.
std::shared_ptr<const KeptBlock> kept_block(std::int64_t stride, const std::uint8_t* from,
                                            std::size_t bytes, SlotMarks marks) {
  std::vector<std::uint8_t> content(to_size(stride), 0xFF);
  std::memcpy(content.data(), from, bytes);
  return std::make_shared<const KeptBlock>(KeptBlock{std::move(content), std::move(marks)});
}

Error damaged(const std::string& path, const std::string& what) {
  return bad_input(fmt::format("{}: {}", path, what),
                   "a kept session is only a shortcut: the steps can be run again");
}

}  // namespace

// The friend of Session. What is written and read goes in one order:
//   key, sizes | step records | steps of the pictures | pictures: now, then rewind points |
//   their blocks in host memory | rows
// Requests, tables, keys and the free list are not written: going through the recorded steps again
// without computing gives the same ones.
class SessionFile {
 public:
  static Result<void> save(const Session& session, const std::string& path, const std::string& key);
  static Result<void> load(Session& session, const std::string& path, const std::string& key);
  static Result<SessionState> state(const Session& session, std::int64_t step,
                                    References references);
  static Result<void> begin(Session& session, const SessionState& state);

 private:
  using Picture = RewindPoint;  // of a step boundary
  struct Row {
    const CacheSpec* spec;
    std::int64_t row;
    std::int64_t step;    // -1 = the engine never wrote it
    std::int64_t origin;  // row it was taken over from
    as_cache page;        // where its record is,
    std::int64_t slot;
    const std::uint8_t* record;  // or here
    const std::uint8_t *sim, *exact;
  };

  // Whether all its rows lie where other sessions have them.
  static Result<void> no_tier(const Session& session);
  // history: of the steps before `now`. earlier: pictures of some of them, newest first.
  // references: whose histories go along.
  static void write(ByteWriter& out, const Session& session, References references,
                    const std::string& key, const std::vector<StepRecord>& history,
                    const Picture& now, const std::vector<const Picture*>& earlier);
  // path: of messages.
  static Result<void> read(Session& session, ByteReader in, RecordsOf age, const std::string& path,
                           const std::string& key);
  static void write_identity(ByteWriter& out, const Session& session, References references,
                             const std::string& key);
  static void write_blocks(ByteWriter& out, const Session& session, const Picture& picture,
                           const Picture* now);
  // Blocks in host memory; of sessions that have it.
  static void write_swapped(ByteWriter& out, const Session& session, const Picture& picture);
  static void write_rows(ByteWriter& out, const Session& session, References references,
                         const Picture& picture, Visited& visited);

  static bool read_identity(ByteReader& in, const Session& session, const std::string& key);
  // The states before `steps` (ascending), by going through the records. False where these are not
  // what the session's requests lead to.
  static bool rebuild(const Session& session, const std::vector<StepRecord>& history,
                      const std::vector<std::int64_t>& steps, std::vector<Picture>& pictures);
  static void read_blocks(ByteReader& in, const Session& session, Picture& picture,
                          const Picture* now);
  static SlotMarks read_marks(ByteReader& in, const Session& session, std::int32_t group);
  // Which blocks those are the rebuilt requests say.
  static void read_swapped(ByteReader& in, const Session& session, Picture& picture);
  static void read_rows(ByteReader& in, const Session& session, const Picture& picture,
                        Visited& visited, std::vector<Row>& rows);
  static void put_back(Session& session, const Picture& now, const std::vector<Row>& rows);
  // Calls f(spec, logical row, address in the block) for every row that this picture's blocks hold
  // and nobody visited before: what can still be read, at most.
  template <class F>
  static void each_row(const Session& session, const Picture& picture, Visited& visited,
                       const F& f);
  // Place of a block among picture.ids; -1 = not there.
  static std::int64_t place_of(const Picture& picture, std::int32_t block) {
    const auto it = std::ranges::lower_bound(picture.ids, block);
    return it != picture.ids.end() && *it == block ? it - picture.ids.begin() : -1;
  }
  static std::size_t group_bytes(const Session& session, std::int32_t group) {
    return to_size(session.parts_.layout.groups[to_size(group)].bytes);
  }
};

template <class F>
void SessionFile::each_row(const Session& s, const Picture& picture, Visited& visited, const F& f) {
  const CacheLayout& layout = s.parts_.layout;
  const AddressSpace& space = s.verifier_->space();
  const std::vector<BlockOwner> owners = picture.serving.owners();
  std::vector<std::size_t> first_mark(layout.specs.size());  // of a spec in its group's marks
  for (const CacheGroup& group : layout.groups) {
    std::size_t at = 0;
    for (const int spec : group.specs) {
      first_mark[to_size(spec)] = at;
      at += to_size(layout.specs[to_size(spec)].rows_per_block);
    }
  }
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const CacheSpec& spec = layout.specs[i];
    const auto visit = [&](const KeptBlock& block, std::int64_t r, std::int64_t row) {
      if (!visited.visit(i, row)) return;
      f(spec, row, block_cache(spec, block.content.data()), r);
    };
    const auto visit_marked = [&](const KeptBlock& block) {
      for (std::int64_t r = 0; r < spec.rows_per_block; ++r) {
        const std::int64_t row = block.marks.rows[first_mark[i] + to_size(r)];
        if (row >= 0) visit(block, r, row);
      }
    };
    for (std::size_t place = 0; place < picture.ids.size(); ++place) {
      if (owners[to_size(picture.ids[place])].group == spec.group) {
        visit_marked(*picture.blocks[place]);
      }
    }
    for (const auto& [host, block] : picture.swapped.blocks()) {
      if (block.group == spec.group) visit_marked(*block.kept);
    }
    const int ratio = row_ratio(spec);
    for (const Request& request : picture.serving.requests()) {
      const auto table = picture.serving.table(request.id, spec.group);
      for (std::size_t entry = 0; entry < table.size(); ++entry) {
        const std::int64_t place = place_of(picture, table[entry]);
        const std::int64_t first = static_cast<std::int64_t>(entry) * spec.rows_per_block;
        for (std::int64_t r = 0; place >= 0 && r < spec.rows_per_block; ++r) {
          if (first + r >= request.computed / ratio) break;
          visit(*picture.blocks[to_size(place)], r, space.base(request.id, ratio) + first + r);
        }
      }
    }
  }
}

void SessionFile::write_identity(ByteWriter& out, const Session& s, References references,
                                 const std::string& key) {
  out.text(key);
  out.value(static_cast<std::int32_t>(references));
  out.value(s.serving_->num_blocks());
  out.value(s.slab_->block_stride());
  out.value(std::uint64_t{s.parts_.layout.specs.size()});
  out.value(std::uint64_t{s.serving_->requests().size()});
  for (const Request& request : s.serving_->requests()) {
    out.value(request.prompt_tokens);
    out.value(request.max_new_tokens);
  }
}

bool SessionFile::read_identity(ByteReader& in, const Session& s, const std::string& key) {
  ByteWriter expected;
  write_identity(expected, s, s.references(), key);
  const std::vector<std::uint8_t>& want = expected.out();
  const std::uint8_t* found = in.bytes(want.size());
  return found != nullptr && std::memcmp(found, want.data(), want.size()) == 0;
}

bool SessionFile::rebuild(const Session& s, const std::vector<StepRecord>& history,
                          const std::vector<std::int64_t>& steps, std::vector<Picture>& pictures) {
  Serving serving = *s.serving_;
  serving.scheduler().kv().set_audit(nullptr);  // whoever watches the session's own
  ServingJudge judge = *s.judge_;
  WorkerTables tables = s.tables_;
  std::size_t next = 0;
  const auto keep = [&](std::int64_t step) {
    if (next >= steps.size() || steps[next] != step) return;
    pictures.push_back({step, serving, judge, tables, serving.blocks_with_content(), {}, {}, {}});
    ++next;
  };
  for (std::size_t i = 0; i < history.size(); ++i) {
    const StepRecord& record = history[i];
    const auto step = static_cast<std::int64_t>(i);
    keep(step);
    if (record.step != step || record.timings.empty() || serving.done()) return false;
    serving.begin_step(step);
    judge.begin_step(step, serving);
    const std::size_t rows = record.live.size();
    if (record.live != serving.live() || record.sampled.size() != rows ||
        record.drafted.size() != rows || record.accepted.size() != rows ||
        (!record.proposed.empty() && record.proposed.size() != rows)) {
      return false;
    }
    const ServingStep& decided = serving.schedule();
    judge.planned(serving);
    std::int64_t tokens = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      tokens += decided.num_scheduled_tokens[r];
      const Request& request = serving.requests()[to_size(record.live[r])];
      const bool samples =
          decided.num_scheduled_tokens[r] > 0 &&
          decided.num_computed[r] + decided.num_scheduled_tokens[r] >= request.num_tokens();
      const auto drafts = static_cast<std::int32_t>(serving.drafts()[r].size());
      if (record.drafted[r] != drafts) return false;
      if (record.accepted[r] < 0 || record.accepted[r] > drafts) return false;
      if (record.sampled[r] < -1 || record.sampled[r] >= s.parts_.config.vocabulary) return false;
      if (record.sampled[r] >= 0 && !samples) return false;
      if (!record.proposed.empty() && record.proposed[r] >= s.parts_.config.vocabulary)
        return false;
    }
    if (tokens != record.tokens) return false;
    keep_tables(serving, tables);
    serving.finish_step(record.sampled, record.accepted, record.proposed);
    judge.ended(serving, record.sampled, record.accepted);
  }
  keep(static_cast<std::int64_t>(history.size()));
  return next == steps.size();
}

// now: the newest picture; blocks with the same content there are not written again.
void SessionFile::write_blocks(ByteWriter& out, const Session& s, const Picture& picture,
                               const Picture* now) {
  const std::vector<BlockOwner> owners = picture.serving.owners();
  const std::vector<BlockOwner> later = now != nullptr ? now->serving.owners() : owners;
  for (std::size_t i = 0; i < picture.ids.size(); ++i) {
    const std::int32_t id = picture.ids[i];
    out.list(picture.blocks[i]->marks.rows);
    out.list(picture.blocks[i]->marks.steps);
    const std::int32_t group = owners[to_size(id)].group;
    const std::uint8_t* content = picture.blocks[i]->content.data();
    const std::size_t bytes = group_bytes(s, group);
    if (now != nullptr) {
      const std::int64_t place = place_of(*now, id);
      const bool same =
          place >= 0 && later[to_size(id)].group == group &&
          std::memcmp(now->blocks[to_size(place)]->content.data(), content, bytes) == 0;
      out.value<std::uint8_t>(same ? 1 : 0);
      if (same) continue;
    }
    out.bytes(content, bytes);
  }
}

void SessionFile::write_swapped(ByteWriter& out, const Session& s, const Picture& picture) {
  for (const auto& [host, block] : picture.swapped.blocks()) {
    out.list(block.kept->marks.rows);
    out.list(block.kept->marks.steps);
    out.bytes(block.kept->content.data(), group_bytes(s, block.group));
  }
}

SlotMarks SessionFile::read_marks(ByteReader& in, const Session& s, std::int32_t group) {
  const CacheLayout& layout = s.parts_.layout;
  SlotMarks marks;
  marks.rows = in.list<std::int64_t>();
  marks.steps = in.list<std::int32_t>();
  std::size_t at = 0;
  for (const int spec : layout.groups[to_size(group)].specs) {
    const std::int64_t rows = s.verifier_->space().rows(row_ratio(layout.specs[to_size(spec)]));
    for (int r = 0; r < layout.specs[to_size(spec)].rows_per_block; ++r, ++at) {
      if (at >= marks.rows.size() || marks.rows[at] < -1 || marks.rows[at] >= rows) in.fail();
    }
  }
  if (marks.rows.size() != at || marks.steps.size() != at) in.fail();
  return marks;
}

void SessionFile::read_swapped(ByteReader& in, const Session& s, Picture& picture) {
  std::map<std::int32_t, SwappedBlock> waiting;  // by host block, as they are written
  for (const std::int32_t slot : picture.serving.scheduler().waiting()) {
    const SchedRequest& request = picture.serving.scheduler().request(slot);
    for (std::size_t g = 0; g < request.swapped.size(); ++g) {
      const SwappedTable& table = request.swapped[g];
      for (std::size_t i = 0; i < table.blocks.size(); ++i) {
        waiting[table.blocks[i]] = {
            static_cast<std::int32_t>(g), static_cast<std::int32_t>(request.id),
            static_cast<std::int32_t>(table.nulls + static_cast<std::int64_t>(i)), nullptr};
      }
    }
  }
  for (auto& [host, block] : waiting) {
    SlotMarks marks = read_marks(in, s, block.group);
    const std::size_t bytes = group_bytes(s, block.group);
    const std::uint8_t* from = in.bytes(bytes);
    if (!in.ok()) return;
    block.kept = kept_block(s.slab_->block_stride(), from, bytes, std::move(marks));
    picture.swapped.put(host, std::move(block));
  }
}

void SessionFile::read_blocks(ByteReader& in, const Session& s, Picture& picture,
                              const Picture* now) {
  if (!in.ok()) return;
  const std::vector<BlockOwner> owners = picture.serving.owners();
  const std::vector<BlockOwner> later = now != nullptr ? now->serving.owners() : owners;
  for (std::size_t i = 0; i < picture.ids.size(); ++i) {
    const std::int32_t id = picture.ids[i];
    const std::int32_t group = owners[to_size(id)].group;
    SlotMarks marks = read_marks(in, s, group);
    if (!in.ok()) return;
    const std::uint8_t* from = nullptr;
    if (now != nullptr && in.value<std::uint8_t>() == 1) {
      const std::int64_t place = place_of(*now, id);
      if (place < 0 || later[to_size(id)].group != group) return in.fail();
      const auto& same = now->blocks[to_size(place)];
      if (same->marks == marks) {
        picture.blocks.push_back(same);
        continue;
      }
      from = same->content.data();
    } else {
      from = in.bytes(group_bytes(s, group));
    }
    if (!in.ok()) return;
    picture.blocks.push_back(
        kept_block(s.slab_->block_stride(), from, group_bytes(s, group), std::move(marks)));
  }
}

void SessionFile::write_rows(ByteWriter& out, const Session& s, References references,
                             const Picture& picture, Visited& visited) {
  const Shadow& shadow = s.verifier_->shadow();
  const bool both = references == References::kBoth;
  const History* sim = references == References::kNone ? nullptr : s.verifier_->free_history(false);
  const History* exact = both ? s.verifier_->free_history(true) : nullptr;
  each_row(s, picture, visited,
           [&](const CacheSpec& spec, std::int64_t row, const as_cache& page, std::int64_t slot) {
             const std::int64_t step = shadow.written(spec, row);
             out.value(static_cast<std::int32_t>(step));
             if (step >= 0) {
               out.value(shadow.origin(spec, row));
               // The page holds what was recorded, unless somebody changed it since.
               const as_cache recorded = shadow.cache(spec);
               const bool same = as_row_equals(&page, slot, history_row(recorded, row)) != 0;
               out.value<std::uint8_t>(same ? 1 : 0);
               if (!same) out.bytes(history_row(recorded, row), history_row_bytes(recorded));
             }
             for (const History* history : {sim, exact}) {
               if (history == nullptr) continue;
               const as_cache cache = history->cache(spec);
               out.bytes(history_row(cache, row), history_row_bytes(cache));
             }
           });
}

void SessionFile::read_rows(ByteReader& in, const Session& s, const Picture& picture,
                            Visited& visited, std::vector<Row>& rows) {
  if (!in.ok()) return;
  const History* sim = s.verifier_->free_history(false);
  const History* exact = s.verifier_->free_history(true);
  each_row(s, picture, visited,
           [&](const CacheSpec& spec, std::int64_t row, const as_cache& page, std::int64_t slot) {
             Row out{&spec,   row,    in.value<std::int32_t>(), -1, page, slot, nullptr,
                     nullptr, nullptr};
             if (out.step >= 0) {
               out.origin = in.value<std::int64_t>();
               if (out.origin < 0 || out.origin >= s.verifier_->space().rows(row_ratio(spec))) {
                 in.fail();
               }
             }
             if (out.step >= 0 && in.value<std::uint8_t>() != 1) {
               out.record = in.bytes(to_size(spec.row_bytes()));
             }
             if (sim != nullptr) out.sim = in.bytes(history_row_bytes(sim->cache(spec)));
             if (exact != nullptr) out.exact = in.bytes(history_row_bytes(exact->cache(spec)));
             rows.push_back(out);
           });
}

void SessionFile::put_back(Session& s, const Picture& now, const std::vector<Row>& rows) {
  Shadow& shadow = s.verifier_->shadow();
  const History* sim = s.verifier_->free_history(false);
  const History* exact = s.verifier_->free_history(true);
  for (const Row& r : rows) {
    if (r.step >= 0 && r.record == nullptr) {
      shadow.put_record(*r.spec, r.row, r.page, r.slot, r.step, r.origin);
    } else if (r.step >= 0) {
      shadow.put_record(*r.spec, r.row, r.record, r.step, r.origin);
    }
    if (sim != nullptr) {
      const as_cache cache = sim->cache(*r.spec);
      std::memcpy(history_row(cache, r.row), r.sim, history_row_bytes(cache));
    }
    if (exact != nullptr) {
      const as_cache cache = exact->cache(*r.spec);
      std::memcpy(history_row(cache, r.row), r.exact, history_row_bytes(cache));
    }
  }
  *s.serving_ = now.serving;
  *s.judge_ = now.judge;
  s.guard_.attach(*s.serving_, s.guard_.level());
  s.tables_ = now.tables;
  s.restore_rows(now);
  s.swapped_ = now.swapped;
  const LaneSelector& lanes = std::prev(s.lanes_from_.upper_bound(now.step))->second;
  const BetweenOps* between = lanes.between();
  if (between != nullptr && between->restored != nullptr) between->restored(*s.slab_);
  s.cursor_ = {now.step, -1, 0, false};
  s.check_restored();
}

void SessionFile::write(ByteWriter& out, const Session& s, References references,
                        const std::string& key, const std::vector<StepRecord>& history,
                        const Picture& now, const std::vector<const Picture*>& earlier) {
  write_identity(out, s, references, key);
  write_records(out, history);
  out.value(std::uint64_t{earlier.size()});
  for (const Picture* c : earlier) out.value(c->step);
  write_blocks(out, s, now, nullptr);
  for (const Picture* c : earlier) write_blocks(out, s, *c, &now);
  write_swapped(out, s, now);
  for (const Picture* c : earlier) write_swapped(out, s, *c);
  Visited visited(s.parts_.layout, s.verifier_->space());
  write_rows(out, s, references, now, visited);
  for (const Picture* c : earlier) write_rows(out, s, references, *c, visited);
}

Result<void> SessionFile::no_tier(const Session& s) {
  if (!s.tier_) return {};
  return usage_error("its rows lie in host memory, behind pools of rows",
                     "only a session without \"ess\" is kept; its steps run again");
}

Result<void> SessionFile::save(const Session& s, const std::string& path, const std::string& key) {
  if (s.in_step_) {
    return usage_error(fmt::format("step {} is not complete", s.cursor_.step),
                       "a session is kept between two steps: finish this one first");
  }
  if (s.lanes_from_.size() > 1) {
    return usage_error("the lanes were changed on the way",
                       "only a session that ran on the lanes it was made with is kept");
  }
  if (auto ok = no_tier(s); !ok) return ok;
  const std::unique_ptr<Picture> now = s.make_rewind_point();
  std::vector<const Picture*> newest;
  for (const auto& c : s.rewind_points_->all()) {
    if (c->step > 0 && c->step < s.cursor_.step) newest.push_back(c.get());
  }
  std::ranges::sort(newest, std::greater<>(), &Picture::step);
  while (newest.size() > kKeptRewindPoints) newest.pop_back();
  ByteWriter out;
  write(out, s, s.references(), key, s.history_, *now, newest);

  const auto refused = [&](const std::string& where) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("{}: {}", where, std::strerror(errno)),
                 "choose a folder that can be written, or free some space"};
  };
  std::error_code ignored;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return refused(temporary);
  Header header{};
  std::memcpy(header.magic, kMagic.data(), sizeof(header.magic));
  header.bytes = out.out().size();
  header.checksum = checksum(out.out().data(), out.out().size());
  bool written = std::fwrite(&header, sizeof(header), 1, file) == 1 &&
                 std::fwrite(out.out().data(), 1, out.out().size(), file) == out.out().size();
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  Error error = refused(path);
  std::remove(temporary.c_str());
  return error;
}

Result<void> SessionFile::load(Session& s, const std::string& path, const std::string& key) {
  if (s.in_step_ || s.cursor_.step != 0) {
    return usage_error(fmt::format("the session has run {} steps", s.history_.size()),
                       "a kept session is read into a fresh one");
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (!file) return damaged(path, std::strerror(errno));
  Header header{};
  std::error_code ignored;
  const std::uintmax_t size = std::filesystem::file_size(path, ignored);
  const bool whole = !ignored && std::fread(&header, sizeof(header), 1, file.get()) == 1;
  const std::string_view magic(header.magic, sizeof(header.magic));
  if (!whole || (magic != kMagic && magic != kWithoutProposed && magic != kWithoutStarts &&
                 magic != kWithoutDecisions)) {
    return damaged(path, "not a kept session");
  }
  if (header.bytes != size - sizeof(header)) return damaged(path, "cut off or too long");
  const std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[header.bytes]);
  if (std::fread(data.get(), 1, header.bytes, file.get()) != header.bytes) {
    return damaged(path, "cut off");
  }
  if (checksum(data.get(), header.bytes) != header.checksum) return damaged(path, "damaged");

  const RecordsOf age = magic == kMagic             ? RecordsOf::kNow
                        : magic == kWithoutProposed ? RecordsOf::kWithoutProposed
                        : magic == kWithoutStarts   ? RecordsOf::kWithoutStarts
                                                    : RecordsOf::kWithoutDecisions;
  return read(s, ByteReader(data.get(), header.bytes), age, path, key);
}

Result<SessionState> SessionFile::state(const Session& s, std::int64_t step,
                                        References references) {
  if (auto ok = no_tier(s); !ok) return ok.error();
  if (references > s.references()) {
    return usage_error("the session runs fewer references", "begin from its first step");
  }
  const Picture* nearest = s.rewind_points_->at_or_before(step);
  if (nearest == nullptr) {
    return bad_input(fmt::format("no step {} to begin from", step), "steps count from 0");
  }
  std::vector<StepRecord> history(s.history_.begin(), s.history_.end());
  history.insert(history.end(), s.ahead_.begin(), s.ahead_.end());
  if (to_count(history.size()) < nearest->step) {
    return bad_input(fmt::format("step {} is not known", nearest->step), "run it first");
  }
  history.resize(to_size(nearest->step));
  ByteWriter out;
  write(out, s, references, {}, history, *nearest, {});
  return SessionState{nearest->step, out.out()};
}

Result<void> SessionFile::begin(Session& s, const SessionState& state) {
  if (s.in_step_ || s.cursor_.step != 0) {
    return usage_error(fmt::format("the session has run {} steps", s.history_.size()),
                       "a state is put into a fresh one");
  }
  return read(s, ByteReader(state.bytes.data(), state.bytes.size()), RecordsOf::kNow,
              "the state of a session", {});
}

Result<void> SessionFile::read(Session& s, ByteReader in, RecordsOf age, const std::string& path,
                               const std::string& key) {
  if (!read_identity(in, s, key)) {
    return damaged(path, "of another program, scenario or choice of lanes");
  }
  std::vector<StepRecord> history = read_records(in, age);
  const auto kept = in.value<std::uint64_t>();
  if (kept > kKeptRewindPoints) in.fail();
  // Newest first in the file, now in front; oldest first where they are rebuilt.
  std::vector<std::int64_t> steps{static_cast<std::int64_t>(history.size())};
  for (std::uint64_t i = 0; in.ok() && i < kept; ++i) {
    steps.push_back(in.value<std::int64_t>());
    if (steps.back() <= 0 || steps.back() >= steps[steps.size() - 2]) in.fail();
  }
  std::ranges::reverse(steps);
  std::vector<Picture> pictures;
  const auto misfit = [&] { return damaged(path, "its parts do not fit together"); };
  if (!in.ok() || !rebuild(s, history, steps, pictures)) return misfit();
  std::ranges::reverse(pictures);
  for (Picture& picture : pictures) {
    read_blocks(in, s, picture, &picture == &pictures.front() ? nullptr : &pictures.front());
  }
  for (Picture& picture : pictures) read_swapped(in, s, picture);
  if (!in.ok()) return misfit();
  std::vector<Row> rows;
  Visited visited(s.parts_.layout, s.verifier_->space());
  for (const Picture& picture : pictures) read_rows(in, s, picture, visited, rows);
  if (!in.at_end()) return misfit();

  std::vector<std::unique_ptr<Picture>> rewind_points;
  for (std::size_t i = 1; i < pictures.size() && s.rewind_every_ > 0; ++i) {
    rewind_points.push_back(std::make_unique<Picture>(pictures[i]));
  }
  if (age == RecordsOf::kWithoutDecisions) s.take_profiles(1);
  put_back(s, pictures.front(), rows);
  s.refill_ranks();
  for (auto& c : rewind_points) s.rewind_points_->add(std::move(c));
  s.history_ = std::move(history);
  if (s.rewind_every_ > 0) s.save_rewind_point();
  return {};
}

Result<void> save_session(const Session& session, const std::string& path, const std::string& key) {
  try {
    return SessionFile::save(session, path, key);
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("{}: out of memory", path), {}};
  }
}

Result<void> load_session(Session& session, const std::string& path, const std::string& key) {
  try {
    return SessionFile::load(session, path, key);
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, fmt::format("{}: out of memory", path), {}};
  }
}

Result<SessionState> session_state(const Session& session, std::int64_t step,
                                   References references) {
  try {
    return SessionFile::state(session, step, references);
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, "out of memory for the state of a session", {}};
  }
}

Result<void> begin_from(Session& session, const SessionState& state) {
  try {
    return SessionFile::begin(session, state);
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, "out of memory for the state of a session", {}};
  }
}

}  // namespace attnscope
