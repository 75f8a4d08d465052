#include "engine/session/session_file.h"

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

#include "engine/session/byte_stream.h"
#include "engine/session/record_io.h"
#include "engine/session/session_checkpoint.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr char kMagic[8] = {'A', 'S', 'K', 'E', 'P', 'T', '0', '1'};
constexpr std::size_t kCheckpoints = 2;  // the newest ones go along, for steps back

struct Header {
  char magic[8];
  std::uint64_t bytes;  // of what follows
  std::uint64_t checksum;
};

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// One block of a cache as a cache of its own.
as_cache block_cache(const CacheSpec& spec, const std::uint8_t* block) {
  as_cache c{};
  c.data = make_tensor(block + spec.offset, {1, spec.page_bytes});
  c.record = spec.record;
  c.addressing = AS_PAGED;
  c.rows_per_block = spec.rows_per_block;
  c.width = spec.width;
  return c;
}

// Where each block's bytes are, by id; nullptr = not in use.
using Blocks = std::vector<const std::uint8_t*>;

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

// Calls f(spec, logical row, address in the block) for every row that blocks in use hold and nobody
// visited before: what can still be read, at most.
template <class F>
void each_row(const CacheLayout& layout, const AddressSpace& space,
              const std::vector<Request>& requests, const std::vector<BlockOwner>& owners,
              const Blocks& blocks, Visited& visited, const F& f) {
  for (std::size_t s = 0; s < layout.specs.size(); ++s) {
    const CacheSpec& spec = layout.specs[s];
    const int ratio = row_ratio(spec);
    for (std::size_t id = 0; id < owners.size(); ++id) {
      const BlockOwner& owner = owners[id];
      if (owner.request < 0 || owner.group != spec.group) continue;
      const as_cache cache = block_cache(spec, blocks[id]);
      const std::int64_t written = requests[to_size(owner.request)].computed / ratio;
      const std::int64_t first = std::int64_t{owner.index} * spec.rows_per_block;
      const std::int64_t rows = std::min<std::int64_t>(spec.rows_per_block, written - first);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t row = space.base(owner.request, ratio) + first + r;
        if (visited.visit(s, row)) f(spec, row, as_cache_row(&cache, r));
      }
    }
  }
}

std::size_t history_row_bytes(const as_cache& cache) {
  return to_size(cache.data.shape[1] * as_dtype_size(cache.data.dtype));
}

std::uint8_t* history_row(const as_cache& cache, std::int64_t row) {
  return static_cast<std::uint8_t*>(cache.data.data) + to_size(row) * history_row_bytes(cache);
}

// Whether these are the records of the steps before `step`.
bool follow_each_other(const std::vector<StepRecord>& history, std::int64_t step,
                       std::size_t requests) {
  if (static_cast<std::int64_t>(history.size()) != step) return false;
  std::int64_t expected = 0;
  for (const StepRecord& r : history) {
    if (r.step != expected++ || r.timings.empty() || r.sampled.size() != r.live.size())
      return false;
    for (const std::int32_t id : r.live) {
      if (id < 0 || static_cast<std::size_t>(id) >= requests) return false;
    }
  }
  return true;
}

Error damaged(const std::string& path, const std::string& what) {
  return bad_input(fmt::format("{}: {}", path, what),
                   "a kept session is only a shortcut: the steps can be run again");
}

}  // namespace

// The friend of Session. What is written and read goes in one order:
//   key, sizes | now | checkpoints | rows of now, rows of checkpoints | step records
class SessionFile {
 public:
  static Result<void> save(const Session& session, const std::string& path, const std::string& key);
  static Result<void> load(Session& session, const std::string& path, const std::string& key);

 private:
  // A step boundary as it is read: nothing of the session is touched before all is known to fit.
  struct Picture {
    std::int64_t step = 0;
    Scheduler scheduler;
    std::unique_ptr<BlockManager> manager;
    Blocks blocks;
  };
  struct Row {
    const CacheSpec* spec;
    std::int64_t row;
    std::int64_t step;  // -1 = the engine never wrote it
    as_row_address record;
    const std::uint8_t *sim, *exact;
  };

  static void write_identity(ByteWriter& out, const Session& session, const std::string& key);
  static void write_state(ByteWriter& out, std::int64_t step, const Scheduler& scheduler,
                          const BlockManager& manager, std::size_t groups);
  static void write_blocks(ByteWriter& out, const Session& session,
                           const std::vector<BlockOwner>& owners, const Blocks& blocks,
                           const Blocks* now);
  static void write_rows(ByteWriter& out, const Session& session, const Scheduler& scheduler,
                         const std::vector<BlockOwner>& owners, const Blocks& blocks,
                         Visited& visited);
  static Blocks blocks_now(const Session& session);
  static Blocks blocks_of(const Session::Checkpoint& checkpoint, std::int64_t stride);

  static bool read_identity(ByteReader& in, const Session& session, const std::string& key);
  static Picture read_state(ByteReader& in, const Session& session);
  static void read_blocks(ByteReader& in, const Session& session, Picture& picture,
                          const Picture* now);
  static void read_rows(ByteReader& in, const Session& session, const Picture& picture,
                        Visited& visited, std::vector<Row>& rows);
  static std::unique_ptr<Session::Checkpoint> checkpoint_of(const Session& session,
                                                            Picture picture);
  static void put_back(Session& session, Picture now, const std::vector<Row>& rows,
                       std::vector<std::unique_ptr<Session::Checkpoint>> checkpoints,
                       std::vector<StepRecord> history);
};

void SessionFile::write_identity(ByteWriter& out, const Session& s, const std::string& key) {
  out.text(key);
  out.value(static_cast<std::int32_t>(s.references()));
  out.value(s.blocks_->num_blocks());
  out.value(s.slab_->block_stride());
  out.value(std::uint64_t{s.parts_.layout.specs.size()});
  out.value(std::uint64_t{s.scheduler_.requests().size()});
  for (const Request& request : s.scheduler_.requests()) {
    out.value(request.prompt_tokens);
    out.value(request.max_new_tokens);
  }
}

bool SessionFile::read_identity(ByteReader& in, const Session& s, const std::string& key) {
  ByteWriter expected;
  write_identity(expected, s, key);
  const std::vector<std::uint8_t>& want = expected.out();
  const std::uint8_t* found = in.bytes(want.size());
  return found != nullptr && std::memcmp(found, want.data(), want.size()) == 0;
}

Blocks SessionFile::blocks_now(const Session& s) {
  Blocks blocks(s.blocks_->owners().size(), nullptr);
  for (std::size_t id = 0; id < blocks.size(); ++id) {
    if (s.blocks_->owners()[id].request >= 0) {
      blocks[id] = s.slab_->block(static_cast<std::int64_t>(id));
    }
  }
  return blocks;
}

Blocks SessionFile::blocks_of(const Session::Checkpoint& c, std::int64_t stride) {
  Blocks blocks(c.blocks->owners().size(), nullptr);
  for (std::size_t i = 0; i < c.ids.size(); ++i) {
    blocks[to_size(c.ids[i])] = c.content.data() + i * to_size(stride);
  }
  return blocks;
}

void SessionFile::write_state(ByteWriter& out, std::int64_t step, const Scheduler& scheduler,
                              const BlockManager& manager, std::size_t groups) {
  out.value(step);
  for (const Request& request : scheduler.requests()) {
    out.value(request.computed);
    out.value(static_cast<std::int32_t>(request.state));
    out.list(std::vector<std::int32_t>(request.tokens.begin() + request.prompt_tokens,
                                       request.tokens.end()));
    for (std::size_t g = 0; g < groups; ++g) {
      const auto table = manager.table(request.id, static_cast<int>(g));
      out.list(std::vector<std::int32_t>(table.begin(), table.end()));
    }
  }
  out.list(scheduler.live());
  out.list(manager.free_list());
}

SessionFile::Picture SessionFile::read_state(ByteReader& in, const Session& s) {
  Picture picture;
  picture.step = in.value<std::int64_t>();
  picture.scheduler = s.scheduler_;
  picture.manager = s.blocks_->clone();
  const std::vector<CacheGroup>& groups = s.parts_.layout.groups;
  std::vector<Request> requests = s.scheduler_.requests();
  std::vector<RequestTables> tables;
  std::vector<std::int32_t> unfinished;
  for (Request& request : requests) {
    request.computed = in.value<std::int64_t>();
    const auto state = in.value<std::int32_t>();
    const auto sampled = in.list<std::int32_t>();
    request.tokens.resize(to_size(request.prompt_tokens));
    request.tokens.insert(request.tokens.end(), sampled.begin(), sampled.end());
    const bool fits = request.num_tokens() <= request.max_len() && request.computed >= 0 &&
                      request.computed <= request.num_tokens() && state >= 0 &&
                      state <= static_cast<std::int32_t>(RequestState::kFinished);
    if (!fits) in.fail();
    request.state = static_cast<RequestState>(in.ok() ? state : 0);
    if (request.state != RequestState::kFinished) unfinished.push_back(request.id);
    RequestTables all{request.id, {}};
    std::size_t blocks = 0;
    for (const CacheGroup& group : groups) {
      all.tables.push_back(in.list<std::int32_t>());
      const auto held = static_cast<std::int64_t>(all.tables.back().size());
      if (held > (request.max_len() + group.block_tokens - 1) / group.block_tokens) in.fail();
      blocks += all.tables.back().size();
    }
    if (blocks > 0) tables.push_back(std::move(all));
  }
  const auto live = in.list<std::int32_t>();
  std::vector<std::int32_t> sorted = live;
  std::ranges::sort(sorted);
  if (sorted != unfinished) in.fail();
  const auto free = in.list<std::int32_t>();
  if (!in.ok() || !picture.manager->restore(tables, free)) {
    in.fail();
    return picture;
  }
  picture.scheduler.restore(std::move(requests), live);
  return picture;
}

// now: blocks of the newest picture; those with the same owner and bytes are not written again.
void SessionFile::write_blocks(ByteWriter& out, const Session& s,
                               const std::vector<BlockOwner>& owners, const Blocks& blocks,
                               const Blocks* now) {
  for (std::size_t id = 0; id < blocks.size(); ++id) {
    if (blocks[id] == nullptr) continue;
    const std::size_t bytes = to_size(s.parts_.layout.groups[to_size(owners[id].group)].bytes);
    if (now != nullptr) {
      const bool same = (*now)[id] != nullptr &&
                        s.blocks_->owners()[id].group == owners[id].group &&
                        std::memcmp((*now)[id], blocks[id], bytes) == 0;
      out.value<std::uint8_t>(same ? 1 : 0);
      if (same) continue;
    }
    out.bytes(blocks[id], bytes);
  }
}

void SessionFile::read_blocks(ByteReader& in, const Session& s, Picture& picture,
                              const Picture* now) {
  if (!in.ok()) return;
  const std::vector<BlockOwner>& owners = picture.manager->owners();
  picture.blocks.assign(owners.size(), nullptr);
  for (std::size_t id = 0; id < owners.size(); ++id) {
    if (owners[id].request < 0) continue;
    const std::size_t bytes = to_size(s.parts_.layout.groups[to_size(owners[id].group)].bytes);
    if (now != nullptr && in.value<std::uint8_t>() == 1) {
      picture.blocks[id] = now->blocks[id];
      if (picture.blocks[id] == nullptr || now->manager->owners()[id].group != owners[id].group) {
        in.fail();
      }
    } else {
      picture.blocks[id] = in.bytes(bytes);
    }
    if (!in.ok()) return;
  }
}

void SessionFile::write_rows(ByteWriter& out, const Session& s, const Scheduler& scheduler,
                             const std::vector<BlockOwner>& owners, const Blocks& blocks,
                             Visited& visited) {
  const Shadow& shadow = s.verifier_->shadow();
  const History* sim = s.verifier_->free_history(false);
  const History* exact = s.verifier_->free_history(true);
  each_row(s.parts_.layout, s.verifier_->space(), scheduler.requests(), owners, blocks, visited,
           [&](const CacheSpec& spec, std::int64_t row, const as_row_address& page) {
             const std::int64_t step = shadow.written(spec, row);
             out.value(static_cast<std::int32_t>(step));
             if (step >= 0) {
               // The page holds what was recorded, unless somebody changed it since.
               as_cache recorded = shadow.cache(spec);
               const as_row_address own = as_cache_row(&recorded, row);
               const std::size_t payload = to_size(as_payload_bytes(spec.record, spec.width));
               const std::size_t scales = to_size(as_scale_bytes(spec.record));
               const bool same = std::memcmp(own.payload, page.payload, payload) == 0 &&
                                 (scales == 0 || std::memcmp(own.scales, page.scales, scales) == 0);
               out.value<std::uint8_t>(same ? 1 : 0);
               if (!same) out.bytes(own.payload, payload + scales);
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
  each_row(s.parts_.layout, s.verifier_->space(), picture.scheduler.requests(),
           picture.manager->owners(), picture.blocks, visited,
           [&](const CacheSpec& spec, std::int64_t row, const as_row_address& page) {
             Row out{&spec, row, in.value<std::int32_t>(), page, nullptr, nullptr};
             if (out.step >= 0 && in.value<std::uint8_t>() != 1) {
               const std::size_t payload = to_size(as_payload_bytes(spec.record, spec.width));
               const std::size_t scales = to_size(as_scale_bytes(spec.record));
               // as_row_address is not const: read from, never written to.
               out.record.payload = const_cast<std::uint8_t*>(in.bytes(payload + scales));
               out.record.scales = scales > 0 ? out.record.payload + payload : nullptr;
             }
             if (sim != nullptr) out.sim = in.bytes(history_row_bytes(sim->cache(spec)));
             if (exact != nullptr) out.exact = in.bytes(history_row_bytes(exact->cache(spec)));
             rows.push_back(out);
           });
}

std::unique_ptr<Session::Checkpoint> SessionFile::checkpoint_of(const Session& s, Picture picture) {
  auto c = std::make_unique<Session::Checkpoint>();
  const auto stride = to_size(s.slab_->block_stride());
  const std::vector<BlockOwner>& owners = picture.manager->owners();
  for (std::size_t id = 0; id < owners.size(); ++id) {
    if (owners[id].request < 0) continue;
    c->ids.push_back(static_cast<std::int32_t>(id));
    const auto bytes =
        static_cast<std::ptrdiff_t>(s.parts_.layout.groups[to_size(owners[id].group)].bytes);
    c->content.insert(c->content.end(), picture.blocks[id], picture.blocks[id] + bytes);
    c->content.resize(c->ids.size() * stride, 0xFF);  // the rest of a block is as poisoned
  }
  c->step = picture.step;
  c->scheduler = std::move(picture.scheduler);
  c->blocks = std::move(picture.manager);
  return c;
}

void SessionFile::put_back(Session& s, Picture now, const std::vector<Row>& rows,
                           std::vector<std::unique_ptr<Session::Checkpoint>> checkpoints,
                           std::vector<StepRecord> history) {
  s.scheduler_ = std::move(now.scheduler);
  s.blocks_ = std::move(now.manager);
  const std::vector<BlockOwner>& owners = s.blocks_->owners();
  for (std::size_t id = 0; id < owners.size(); ++id) {
    if (owners[id].request < 0) continue;
    const auto block = static_cast<std::int64_t>(id);
    s.slab_->poison(block);
    std::memcpy(s.slab_->block(block), now.blocks[id],
                to_size(s.parts_.layout.groups[to_size(owners[id].group)].bytes));
  }
  Shadow& shadow = s.verifier_->shadow();
  const History* sim = s.verifier_->free_history(false);
  const History* exact = s.verifier_->free_history(true);
  for (const Row& r : rows) {
    if (r.step >= 0) shadow.restore_row(*r.spec, r.row, r.record, r.step);
    if (sim != nullptr) {
      const as_cache cache = sim->cache(*r.spec);
      std::memcpy(history_row(cache, r.row), r.sim, history_row_bytes(cache));
    }
    if (exact != nullptr) {
      const as_cache cache = exact->cache(*r.spec);
      std::memcpy(history_row(cache, r.row), r.exact, history_row_bytes(cache));
    }
  }
  s.verifier_->rebuild_slots(*s.blocks_, s.scheduler_.requests());
  for (auto& c : checkpoints) s.checkpoints_.push_back(std::move(c));
  s.cursor_ = {now.step, -1, 0, false};
  s.history_ = std::move(history);
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
  ByteWriter out;
  const std::size_t groups = s.parts_.layout.groups.size();
  const Blocks now = blocks_now(s);
  write_identity(out, s, key);
  write_state(out, s.cursor_.step, s.scheduler_, *s.blocks_, groups);
  write_blocks(out, s, s.blocks_->owners(), now, nullptr);
  std::vector<const Session::Checkpoint*> newest;
  for (const auto& c : s.checkpoints_) {
    if (c->step > 0 && c->step < s.cursor_.step) newest.push_back(c.get());
  }
  std::ranges::sort(newest, std::greater<>(), &Session::Checkpoint::step);
  while (newest.size() > kCheckpoints) newest.pop_back();
  out.value(std::uint64_t{newest.size()});
  for (const Session::Checkpoint* c : newest) {
    write_state(out, c->step, c->scheduler, *c->blocks, groups);
    write_blocks(out, s, c->blocks->owners(), blocks_of(*c, s.slab_->block_stride()), &now);
  }
  Visited visited(s.parts_.layout, s.verifier_->space());
  write_rows(out, s, s.scheduler_, s.blocks_->owners(), now, visited);
  for (const Session::Checkpoint* c : newest) {
    write_rows(out, s, c->scheduler, c->blocks->owners(), blocks_of(*c, s.slab_->block_stride()),
               visited);
  }
  write_records(out, s.history_);

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
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.bytes = out.out().size();
  header.checksum = checksum(out.out().data(), out.out().size());
  bool written = std::fwrite(&header, sizeof(header), 1, file) == 1 &&
                 std::fwrite(out.out().data(), 1, out.out().size(), file) == out.out().size();
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const Error error = refused(path);
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
  if (ignored || std::fread(&header, sizeof(header), 1, file.get()) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return damaged(path, "not a kept session");
  }
  if (header.bytes != size - sizeof(header)) return damaged(path, "cut off or too long");
  const std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[header.bytes]);
  if (std::fread(data.get(), 1, header.bytes, file.get()) != header.bytes) {
    return damaged(path, "cut off");
  }
  if (checksum(data.get(), header.bytes) != header.checksum) return damaged(path, "damaged");

  ByteReader in(data.get(), header.bytes);
  if (!read_identity(in, s, key)) {
    return damaged(path, "of another program, scenario or choice of lanes");
  }
  Picture now = read_state(in, s);
  read_blocks(in, s, now, nullptr);
  const auto kept = in.value<std::uint64_t>();
  if (kept > kCheckpoints) in.fail();
  std::vector<Picture> before(in.ok() ? static_cast<std::size_t>(kept) : 0);
  for (Picture& picture : before) {
    picture = read_state(in, s);
    read_blocks(in, s, picture, &now);
    if (!in.ok() || picture.step <= 0 || picture.step >= now.step) {
      in.fail();
      break;
    }
  }
  std::vector<Row> rows;
  Visited visited(s.parts_.layout, s.verifier_->space());
  read_rows(in, s, now, visited, rows);
  for (const Picture& picture : before) read_rows(in, s, picture, visited, rows);
  std::vector<StepRecord> history = read_records(in);
  if (!in.at_end() || !follow_each_other(history, now.step, s.scheduler_.requests().size())) {
    return damaged(path, "its parts do not fit together");
  }
  std::vector<std::unique_ptr<Session::Checkpoint>> checkpoints;
  if (s.checkpoint_every_ > 0) {
    for (Picture& picture : before) checkpoints.push_back(checkpoint_of(s, std::move(picture)));
  }
  s.checkpoints_.reserve(s.checkpoints_.size() + checkpoints.size() + 1);
  put_back(s, std::move(now), rows, std::move(checkpoints), std::move(history));
  if (s.checkpoint_every_ > 0) s.save_checkpoint();
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

}  // namespace attnscope
