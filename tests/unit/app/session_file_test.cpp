// Kept sessions: what comes back is the session, and nothing that is not one is taken for it.
#include "engine/session/persist/session_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/io/byte_stream.h"
#include "engine/session/place.h"
#include "kernels/layout/records.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace session_file_test {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "attnscope_keptXXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name = "a.session") const { return (path_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

std::vector<std::uint8_t> read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

bool same(const std::optional<ErrorFigures>& a, const std::optional<ErrorFigures>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->max_abs == b->max_abs && a->max_rel == b->max_rel && a->cosine == b->cosine &&
         a->differing == b->differing;
}

void expect_same(const StepRecord& a, const StepRecord& b, bool times) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.decisions, b.decisions);
  EXPECT_EQ(a.decode_only, b.decode_only);
  EXPECT_EQ(a.selective, b.selective);
  EXPECT_EQ(a.live, b.live);
  EXPECT_EQ(a.sampled, b.sampled);
  EXPECT_EQ(a.drafted, b.drafted);
  EXPECT_EQ(a.accepted, b.accepted);
  ASSERT_EQ(a.timings.size(), b.timings.size());
  for (std::size_t i = 0; i < a.timings.size(); ++i) {
    EXPECT_EQ(a.timings[i].op, b.timings[i].op);
    EXPECT_EQ(a.timings[i].layer, b.timings[i].layer);
    if (times) {
      EXPECT_EQ(a.timings[i].microseconds, b.timings[i].microseconds);
    }
  }
  if (times) {
    EXPECT_EQ(a.seconds, b.seconds);
  }
  if (times) {
    EXPECT_EQ(a.wall_seconds, b.wall_seconds);
  }
  ASSERT_EQ(a.results.size(), b.results.size());
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    const TapResult &x = a.results[i], &y = b.results[i];
    SCOPED_TRACE(std::string(as_op_find(x.op)->name) + "." + x.tap);
    EXPECT_EQ(x.step, y.step);
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.layer, y.layer);
    EXPECT_EQ(x.tap, y.tap);
    EXPECT_EQ(x.lane, y.lane);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.dtype, y.dtype);
    EXPECT_EQ(x.elements, y.elements);
    EXPECT_EQ(x.tolerance, y.tolerance);
    EXPECT_EQ(x.verdict, y.verdict) << x.note << " / " << y.note;
    EXPECT_EQ(x.budget_used, y.budget_used);
    EXPECT_EQ(x.note, y.note);
    EXPECT_TRUE(same(x.introduced, y.introduced));
    EXPECT_TRUE(same(x.inherited, y.inherited));
    EXPECT_TRUE(same(x.quantisation, y.quantisation));
    ASSERT_EQ(x.selection.has_value(), y.selection.has_value());
    if (x.selection) {
      EXPECT_EQ(x.selection->entries, y.selection->entries);
      EXPECT_EQ(x.selection->margin, y.selection->margin);
    }
    ASSERT_EQ(x.worst.has_value(), y.worst.has_value());
    if (x.worst) {
      EXPECT_EQ(x.worst->index, y.worst->index);
      EXPECT_EQ(x.worst->value, y.worst->value);
      EXPECT_EQ(x.worst->reference, y.worst->reference);
    }
  }
}

// Saves after `steps`, loads into a fresh session, runs both to the end side by side.
void goes_on(const Scenario& scenario, int steps, References references) {
  SCOPED_TRACE("saved after step " + std::to_string(steps));
  Folder folder;
  auto first = small_session(references, scenario);
  run_steps(*first, steps);
  ASSERT_TRUE(save_session(*first, folder.file(), "key"));
  EXPECT_EQ(folder.entries(), 1u);  // no temporary file stays
  auto second = small_session(references, scenario);
  const auto ok = load_session(*second, folder.file(), "key");
  ASSERT_TRUE(ok) << ok.error().text();
  EXPECT_EQ(second->digest(), first->digest());
  EXPECT_EQ(second->cursor(), first->cursor());
  EXPECT_EQ(second->serving().free_list(), first->serving().free_list());
  EXPECT_EQ(last_place(*second), last_place(*first));
  ASSERT_EQ(second->history().size(), first->history().size());
  for (std::size_t i = 0; i < first->history().size(); ++i) {
    expect_same(second->history()[i], first->history()[i], true);
  }
  int more = 0;
  for (; !first->finished(); ++more) {
    ASSERT_TRUE(first->step());
    ASSERT_TRUE(second->step());
    ASSERT_EQ(second->digest(), first->digest());
    expect_same(second->history().back(), first->history().back(), false);
  }
  EXPECT_TRUE(second->finished());
  EXPECT_GE(more, steps == 0 ? 5 : 2);
}

TEST(SessionFile, ALoadedSessionGoesOnLikeOneThatNeverStopped) {
  Scenario scenario = small_scenario();
  scenario.model.layers = {0, 1, 2};
  for (const int steps : {1, 6}) goes_on(scenario, steps, References::kBoth);
  goes_on(scenario, 3, References::kSim);
  for (const int steps : {0, 5}) goes_on(scenario, steps, References::kNone);
}

TEST(SessionFile, AlsoWhenWindowsWereRecycledAndRequestsHaveEnded) {
  // Blocks of "long" are freed and taken again while the others wait for them.
  Scenario scenario = small_scenario(420, 9);
  scenario.model.layers = {0, 1, 2};
  scenario.requests[2].max_new_tokens = 3;
  auto probe = small_session(References::kNone, scenario);
  TraceRecorder recorder({std::int64_t{1} << 40, 1});
  probe->set_observer(&recorder);
  run_steps(*probe, 11);
  std::size_t freed = 0;
  for (const auto& trace : recorder.traces()) freed += trace->freed.size();
  EXPECT_GT(freed, 100u);
  EXPECT_TRUE(std::ranges::any_of(probe->serving().requests(), [](const Request& r) {
    return r.state == RequestState::kFinished;
  }));
  EXPECT_FALSE(probe->finished());
  goes_on(scenario, 5, References::kNone);
  goes_on(scenario, 11, References::kBoth);
}

TEST(SessionFile, OtherIndexFormatAndProfileToo) {
  Scenario scenario = small_scenario(140, 4);
  scenario.model.switches = *profile_switches("deepseek");
  goes_on(scenario, 4, References::kBoth);
}

TEST(SessionFile, EarlierStepsCanStillBeGoneTo) {
  Folder folder;
  auto first = small_session(References::kBoth);
  std::vector<std::uint64_t> digests;
  for (int i = 0; i < 8; ++i) {
    digests.push_back(first->digest());
    run_steps(*first, 1);
  }
  ASSERT_TRUE(save_session(*first, folder.file(), "key"));
  auto second = small_session(References::kBoth);
  ASSERT_TRUE(load_session(*second, folder.file(), "key"));
  class Counter : public SessionObserver {
   public:
    void op_done(const Session&) override {}
    void step_done(const Session&) override { ++steps; }
    void went_back(const Session&) override {}
    int steps = 0;
  } counter;
  second->set_observer(&counter);
  // From the checkpoints at 8, 6, 3 and 0, forward too.
  struct Case {
    std::int64_t step;
    int replayed;
  };
  for (const Case& c : {Case{7, 1}, Case{6, 0}, Case{8, 0}, Case{5, 2}, Case{3, 0}, Case{1, 1},
                        Case{0, 0}, Case{4, 1}}) {
    counter.steps = 0;
    ASSERT_TRUE(second->seek({c.step, -1, 0, false}));
    EXPECT_EQ(counter.steps, c.replayed) << c.step;
    if (c.step < 8) {
      EXPECT_EQ(second->digest(), digests[static_cast<std::size_t>(c.step)]);
    }
    const auto at = static_cast<std::size_t>(c.step);
    if (c.step >= 8) continue;
    ASSERT_TRUE(second->step());
    expect_same(second->history()[at], first->history()[at], false);
  }
}

TEST(SessionFile, AChangedPageIsStillToldFromWhatWasWritten) {
  Folder folder;
  auto first = small_session(References::kSim);
  run_steps(*first, 2);
  const CacheSpec& spec = *first->parts().layout.find(0, kSwaCache);
  const as_cache cache = first->slab().cache(spec);
  // Position 127 of "long": in the window of the next step.
  const std::int32_t block = first->serving().table(0, spec.group)[127 / 64];
  const std::int64_t slot = std::int64_t{block} * spec.rows_per_block + 127 % 64;
  as_cache_row(&cache, slot).payload[5] ^= 0x40;
  as_cache_row(&cache, slot).scales[1] ^= 0x01;
  ASSERT_TRUE(save_session(*first, folder.file(), "key"));
  auto second = small_session(References::kSim);
  ASSERT_TRUE(load_session(*second, folder.file(), "key"));
  for (Session* s : {first.get(), second.get()}) {
    ASSERT_TRUE(s->step());
    const auto& results = s->history().back().results;
    const auto read = std::ranges::find_if(
        results, [](const TapResult& r) { return r.layer == 0 && r.tap == "cache.read"; });
    ASSERT_NE(read, results.end());
    EXPECT_EQ(read->verdict, Verdict::kWrong);
    EXPECT_NE(read->note.find("holds other bytes"), std::string::npos) << read->note;
  }
  expect_same(second->history().back(), first->history().back(), false);
}

TEST(SessionFile, OnlyBetweenStepsAndOnlyIntoAFreshSession) {
  Folder folder;
  auto session = small_session();
  run_steps(*session, 1);
  ASSERT_TRUE(save_session(*session, folder.file(), "key"));
  const auto again = load_session(*session, folder.file(), "key");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, AS_USAGE);
  ASSERT_TRUE(session->op());
  const auto inside = save_session(*session, folder.file("b"), "key");
  ASSERT_FALSE(inside);
  EXPECT_EQ(inside.error().code, AS_USAGE);
  EXPECT_FALSE(fs::exists(folder.file("b")));
}

TEST(SessionFile, SessionsWhoseLanesWereChangedAreNotKept) {
  Folder folder;
  auto session = small_session();
  run_steps(*session, 2);
  ASSERT_TRUE(session->change_lanes(all_lanes(), {"mutant:topk_one_short"}, 1));
  const auto kept = save_session(*session, folder.file(), "key");
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, AS_USAGE);
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(SessionFile, MissingForeignAndUnwritableFilesAreSaidAndHarmless) {
  Folder folder;
  auto session = small_session();
  run_steps(*session, 2);
  ASSERT_TRUE(save_session(*session, folder.file("sub/a"), "key"));  // makes the folder
  ASSERT_TRUE(save_session(*session, folder.file(), "key"));
  const auto refused = [&](Session& into, const std::string& file, const std::string& key) {
    const std::uint64_t digest = into.digest();
    const auto ok = load_session(into, file, key);
    EXPECT_FALSE(ok);
    EXPECT_EQ(into.digest(), digest);
    EXPECT_EQ(into.cursor(), Cursor{});
    EXPECT_TRUE(into.history().empty());
    if (!ok) {
      EXPECT_EQ(ok.error().code, AS_BAD_INPUT);
    }
    return ok ? std::string() : ok.error().text();
  };
  auto fresh = small_session();
  EXPECT_NE(refused(*fresh, folder.file("none"), "key").find("No such file"), std::string::npos);
  EXPECT_NE(refused(*fresh, folder.file("sub"), "key").find("sub"), std::string::npos);
  EXPECT_NE(refused(*fresh, folder.file(), "other").find("of another"), std::string::npos);
  EXPECT_NE(refused(*fresh, folder.file(), "").find("of another"), std::string::npos);
  refused(*small_session(References::kSim), folder.file(), "key");
  refused(*small_session(References::kNone, small_scenario(151)), folder.file(), "key");
  Scenario pool = small_scenario();
  pool.pool_blocks = 401;
  refused(*small_session(References::kNone, pool), folder.file(), "key");
  write(folder.file("text"), {'h', 'e', 'l', 'l', 'o'});
  refused(*fresh, folder.file("text"), "key");
  write(folder.file("empty"), {});
  refused(*fresh, folder.file("empty"), "key");
  ASSERT_TRUE(load_session(*fresh, folder.file(), "key"));  // after all of that
  ASSERT_TRUE(fresh->step());
  const auto unwritable = save_session(*session, folder.file("empty/a"), "key");
  ASSERT_FALSE(unwritable);
  EXPECT_EQ(unwritable.error().code, AS_NO_ENVIRONMENT);
  ASSERT_FALSE(save_session(*session, folder.file("sub"), "key"));  // a folder is in the way
  EXPECT_EQ(folder.entries(), 4u);                                  // a, sub, text, empty
}

TEST(SessionFile, TruncationsAndFlippedBytesAreRefused) {
  Folder folder;
  auto session = small_session(References::kSim, small_scenario(70, 3));
  run_steps(*session, 4);
  ASSERT_TRUE(save_session(*session, folder.file(), "key"));
  const std::vector<std::uint8_t> whole = read(folder.file());
  ASSERT_GT(whole.size(), 100000u);
  auto fresh = small_session(References::kSim, small_scenario(70, 3));
  const std::uint64_t digest = fresh->digest();
  const std::string bad = folder.file("bad");
  std::mt19937_64 random(7);
  std::vector<std::size_t> lengths = {0, 1, 7, 8, 16, 23, 24, 25, whole.size() - 1};
  for (int i = 0; i < 60; ++i) lengths.push_back(random() % whole.size());
  for (const std::size_t length : lengths) {
    write(bad, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    EXPECT_FALSE(load_session(*fresh, bad, "key")) << length;
  }
  std::vector<std::uint8_t> longer = whole;
  longer.push_back(0);
  write(bad, longer);
  EXPECT_FALSE(load_session(*fresh, bad, "key"));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 64; ++i) places.push_back(i);
  places.push_back(whole.size() - 1);
  for (int i = 0; i < 150; ++i) places.push_back(random() % whole.size());
  for (const std::size_t place : places) {
    std::vector<std::uint8_t> flipped = whole;
    flipped[place] ^= static_cast<std::uint8_t>(1u << random() % 8);
    write(bad, flipped);
    EXPECT_FALSE(load_session(*fresh, bad, "key")) << place;
  }
  EXPECT_EQ(fresh->digest(), digest);
  write(bad, whole);
  EXPECT_TRUE(load_session(*fresh, bad, "key"));
}

// Damage behind a checksum that fits: whatever the file says, nothing is read or written beyond
// its place, and a refused file leaves the session as it was.
TEST(SessionFile, ForgedContentsNeverCrash) {
  Folder folder;
  auto session = small_session(References::kSim, small_scenario(70, 3));
  run_steps(*session, 4);
  ASSERT_TRUE(save_session(*session, folder.file(), "key"));
  const std::vector<std::uint8_t> whole = read(folder.file());
  std::mt19937_64 random(11);
  const std::string bad = folder.file("bad");
  auto fresh = small_session(References::kSim, small_scenario(70, 3));
  int refused = 0;
  for (int i = 0; i < 250; ++i) {
    std::vector<std::uint8_t> forged = whole;
    // Counts and tables lie at the start, step records at the end.
    const std::size_t reach = std::min<std::size_t>(3000, whole.size() - 24);
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % reach;
      forged[i % 2 == 0 ? 24 + at : whole.size() - 1 - at] = static_cast<std::uint8_t>(random());
    }
    if (i % 5 == 0) forged.resize(24 + random() % (whole.size() - 24));
    const std::uint64_t bytes = forged.size() - 24;
    const std::uint64_t sum = checksum(forged.data() + 24, bytes);
    std::memcpy(forged.data() + 8, &bytes, 8);
    std::memcpy(forged.data() + 16, &sum, 8);
    write(bad, forged);
    if (load_session(*fresh, bad, "key")) {
      TraceRecorder recorder;
      recorder.adopt_history(*fresh);  // what readers do with it
      (void)last_place(*fresh);
      fresh = small_session(References::kSim, small_scenario(70, 3));
    } else {
      ++refused;
      EXPECT_EQ(fresh->cursor(), Cursor{});
    }
  }
  EXPECT_GT(refused, 50);
  ASSERT_TRUE(load_session(*fresh, folder.file(), "key"));
  EXPECT_EQ(fresh->digest(), session->digest());
}

TEST(ByteStream, ReadsWhatWasWrittenAndNothingBeyond) {
  ByteWriter out;
  out.value(std::int32_t{-5});
  out.list(std::vector<double>{1.5, 2.5});
  out.text("abc");
  ByteReader in(out.out().data(), out.out().size());
  EXPECT_EQ(in.value<std::int32_t>(), -5);
  EXPECT_EQ(in.list<double>(), (std::vector<double>{1.5, 2.5}));
  EXPECT_FALSE(in.at_end());
  EXPECT_EQ(in.text(), "abc");
  EXPECT_TRUE(in.at_end());
  EXPECT_EQ(in.value<std::int32_t>(), 0);
  EXPECT_FALSE(in.ok());
  ByteWriter huge;
  huge.value(~std::uint64_t{0});
  ByteReader claims(huge.out().data(), huge.out().size());
  EXPECT_TRUE(claims.list<double>().empty());
  EXPECT_FALSE(claims.ok());
}

TEST(ByteStream, TheChecksumSeesEveryBitAndTheLength) {
  std::vector<std::uint8_t> bytes(101);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
  const std::uint64_t sum = checksum(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    EXPECT_NE(checksum(bytes.data(), bytes.size()), sum) << bit;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
  EXPECT_EQ(checksum(bytes.data(), bytes.size()), sum);
  const std::vector<std::uint8_t> zeros(64, 0);
  EXPECT_NE(checksum(zeros.data(), 32), checksum(zeros.data(), 64));
  EXPECT_NE(checksum(zeros.data(), 3), checksum(zeros.data(), 4));
}

// Of a session that has gone on since, with more references than the one beside it.
TEST(SessionFile, ASessionBesideGoesOnFromAnEarlierState) {
  const Scenario scenario = small_scenario();
  auto shown = small_session(References::kBoth, scenario);
  run_steps(*shown, 8);
  const auto state = session_state(*shown, 7, References::kSim);
  ASSERT_TRUE(state) << state.error().text();
  EXPECT_EQ(state->step, 6) << "every third step's is kept";
  auto beside = small_session(References::kSim, scenario, "cpu", 0);
  const auto begun = begin_from(*beside, *state);
  ASSERT_TRUE(begun) << begun.error().text();
  EXPECT_EQ(beside->cursor().step, 6);
  auto whole = small_session(References::kSim, scenario);
  run_steps(*whole, 6);
  while (!whole->finished()) {
    ASSERT_TRUE(whole->step());
    ASSERT_TRUE(beside->step());
    EXPECT_EQ(beside->digest(), whole->digest());
    expect_same(beside->history().back(), whole->history().back(), false);
  }
  // Gone back, it still knows the steps ahead of it.
  ASSERT_TRUE(shown->seek({2, -1, 0, false}));
  const auto ahead = session_state(*shown, 7, References::kNone);
  ASSERT_TRUE(ahead) << ahead.error().text();
  EXPECT_EQ(ahead->step, 6);
}

TEST(SessionFile, AStateOfAnotherSessionIsRefused) {
  auto shown = small_session(References::kSim);
  run_steps(*shown, 4);
  EXPECT_EQ(session_state(*shown, 4, References::kBoth).error().code, AS_USAGE);
  const auto state = session_state(*shown, 4, References::kSim);
  ASSERT_TRUE(state);
  auto other = small_session(References::kSim, small_scenario(140, 4));
  const std::uint64_t before = other->digest();
  EXPECT_EQ(begin_from(*other, *state).error().code, AS_BAD_INPUT);
  EXPECT_EQ(other->digest(), before);
  auto fewer = small_session(References::kNone);
  EXPECT_EQ(begin_from(*fewer, *state).error().code, AS_BAD_INPUT);
  EXPECT_EQ(begin_from(*shown, *state).error().code, AS_USAGE) << "it has run";
  SessionState torn = *state;
  torn.bytes.resize(torn.bytes.size() / 2);
  auto fresh = small_session(References::kSim);
  EXPECT_EQ(begin_from(*fresh, torn).error().code, AS_BAD_INPUT);
}

}  // namespace session_file_test
}  // namespace attnscope
