"""Everything in the phrasebook's lexicon that is neither a noun nor a verb."""

# english | english comparative ("more": periphrastic, "-": none) | german | german comparative
# ("=": stem + er) | noun classes it may modify
ADJECTIVE_TABLE = """
old|older|alt|älter|job,=man,=woman,=uncle,=aunt,=grandmother,=grandfather,=neighbour,=friend,pet,farm,vehicle,furniture,clothing,footwear,device,container,building,reading_buy,instrument,art,toy,tree,=flat,=key,=photo,=map,=coin,=city,=village,=song,=film,=gate
young|younger|jung|jünger|job,=man,=woman,=neighbour,=tourist,=customer,=patient,=aunt,=uncle,=guest,pet,farm,wild,=tree
new|newer|neu|=|vehicle,furniture,clothing,footwear,device,container,instrument,job,=boss,=neighbour,=colleague,=book,=novel,=film,=song,=rule,=plan,=idea,=flat,=key,=passport,building,toy,=kitchen,=contract
big|bigger|groß|größer|pet,farm,wild,fruit,=cake,=pizza,=sausage,vehicle,furniture,container,building,room,outdoor,tree,toy,art,=problem,=mistake,=party,=window,=garden,opening
small|smaller|klein|=|child_like,pet,farm,wild,fruit,=cake,=pizza,vehicle,furniture,container,building,room,outdoor,tree,toy,art,=mistake,=present,opening
beautiful|more|schön|=|plant,art,music,clothing_body,=woman,=girl,=city,=island,=beach,=garden,=park,=castle,=church,=valley,=lake,=dream,=wedding,=horse,=bird,=vase,=present,=ring,=house,=flat,=poem,=postcard,=cat
good|better|gut|besser|job,=friend,idea_some,reading,show,=wine,=coffee,=recipe,=restaurant,=hotel,=meat,=cheese,=bread,=soup,=camera,=knife,=lesson,=lecture,=beer
bad|worse|schlecht|=|=idea,=film,=decision,=answer,=dream,=joke,=restaurant,=hotel,=plan,=novel,=play,=programme,=wine,=coffee,=singer,=mechanic,=pupil
expensive|more|teuer|teurer|vehicle,furniture,clothing,footwear,device,container,instrument,=ring,=wine,=cheese,=meat,=hotel,=restaurant,=flat,=present,art,=ticket
cheap|cheaper|billig|=|vehicle,furniture,clothing,footwear,device,container,=ring,=wine,=hotel,=restaurant,=flat,=ticket,=umbrella,=pencil
red|-|rot|=|=apple,=cherry,=tomato,=strawberry,clothing,footwear,=rose,=tulip,=car,=bicycle,=ball,=sofa,=umbrella,=bag,=kite,=lamp,=door,=carpet,=blanket,=backpack,=bus
blue|-|blau|=|clothing,footwear,=car,=bicycle,=ball,=sofa,=umbrella,=bag,=kite,=door,=carpet,=blanket,=backpack,=vase,=cup,=notebook,=towel,=plate,=bird,=armchair
green|-|grün|=|=apple,=pear,clothing,=car,=bicycle,=ball,=sofa,=umbrella,=bag,=bush,=door,=carpet,=frog,=parrot,=meadow,=bottle,=tractor,=bench,=notebook,=towel
yellow|-|gelb|=|clothing,=car,=bicycle,=ball,=umbrella,=bag,=banana,=lemon,=rose,=tulip,=flower,=kite,=bird,=taxi,=bucket,=bowl,=towel,=post office
white|-|weiß|=|clothing,=car,=horse,=rabbit,=mouse,=rose,=cat,=goose,=house,=cupboard,=door,=towel,=plate,=ship,=cow,=chest of drawers,=wine,=flower
black|-|schwarz|=|clothing,footwear,=car,=horse,=dog,=cat,=coffee,=tea,=umbrella,=suitcase,=bag,=pig,=piano,=wallet,=motorbike,=wolf,=armchair
grey|-|grau|=|=mouse,=coat,=suit,=cat,=elephant,=donkey,=house,=sofa,=hat,=wolf,=sweater,=carpet,=scarf,=goose,=office
brown|-|braun|=|=dog,=horse,=bear,=bag,=shoe,=boot,=suitcase,=table,=cow,=jacket,=belt,=egg,=hat,=coat,=rabbit,=cupboard
long|longer|lang|länger|=letter,=story,=email,=report,=dress,=coat,=skirt,=scarf,=river,=street,=bridge,=trip,=film,=lecture,=bench,=novel,=train,=exam,=word,=meeting,=poem,=snake
short|shorter|kurz|kürzer|=letter,=story,=email,=report,=dress,=skirt,=trip,=film,=poem,=answer,=song,=lecture,=message,=word,=meeting,=article,=play
heavy|heavier|schwer|=|container_big,=suitcase,=table,=cupboard,=piano,=television,=parcel,=bag,=box,=armchair,=truck,=statue,=washing machine,=fridge,=door,=gate
light|lighter|leicht|=|=suitcase,=bag,=blanket,=parcel,=backpack,=jacket,=chair,=bicycle,=boat
warm|warmer|warm|wärmer|=coat,=jacket,=sweater,=scarf,=glove,=blanket,=water,=milk,=soup,=bread,=room,=bed,=sock,=cap,=bathroom,=meadow,=roll,=cocoa
cold|colder|kalt|kälter|=water,=milk,=soup,=beer,=tea,=lemonade,=juice,=room,=cellar,=bathroom,=pizza,=meat,=lake,=sea,=coffee,=flat
hot|hotter|heiß|=|=tea,=coffee,=soup,=milk,=water,=cocoa,=pan,=pot,=oven,=potato,=pizza,=sausage
fresh|fresher|frisch|=|fruit,=bread,=roll,=milk,=salad,=cheese,=meat,=butter,=juice,=egg,=vegetables,=fruit,=flower
sweet|sweeter|süß|=|fruit_sweet,=cake,=tea,=wine,=honey,=jam,=lemonade,=cocoa,=biscuit,=chocolate,=juice,=fruit,=pancake
sour|more|sauer|saurer|=apple,=lemon,=cherry,=orange,=milk,=juice,=cucumber,=wine,=yoghurt
ripe|riper|reif|=|=apple,=pear,=banana,=tomato,=strawberry,=cherry,=lemon,=peach,=orange,=fruit
tasty|tastier|lecker|=|dish,=apple,=strawberry,=bread,=cheese,=jam,=meat,=rice,=chocolate,=ham,=honey,=yoghurt,=cocoa,=recipe
dark|darker|dunkel|dunkler|=forest,=cellar,=room,=street,=kitchen,=suit,=flat,=coat,=beer,=bread,=garage,=office,=chocolate,=house,=tie
bright|brighter|hell|=|=room,=kitchen,=flat,=lamp,=office,=living room,=classroom,=bathroom,=bedroom
high|higher|hoch|höher|=mountain,=tower,=bridge,=shelf,=gate
deep|deeper|tief|=|=lake,=river,=sea,=valley,=plate,=bowl,=pot
quiet|quieter|ruhig|=|=street,=village,=hotel,=flat,=room,=neighbour,=child,=baby,=lake,=beach,=valley,=library,=park,=pupil
loud|louder|laut|=|=street,=neighbour,=radio,=washing machine,=dog,=vacuum cleaner,=motorbike,=printer,=party,=child,=factory,=parrot
fast|faster|schnell|=|=car,=train,=bicycle,=horse,=boat,=computer,=ship,=motorbike,=plane,=answer,=decision,=printer,=bus
slow|slower|langsam|=|=bus,=train,=computer,=waiter,=pupil,=tractor,=truck,=tram,=printer,=ship,=horse,=snake
strong|stronger|stark|stärker|=man,=horse,=coffee,=bear,=tea,=lion,=beer,=tiger,=boy,=woman,=elephant,=policeman,=donkey
weak|weaker|schwach|schwächer|=coffee,=tea,=patient,=grandmother,=grandfather
clever|more|klug|klüger|person_adult,=dog,=question,=answer,=decision,=child,=fox,=parrot,=idea,=monkey
stupid|more|dumm|dümmer|=question,=answer,=idea,=mistake,=joke,=decision,=thief,=rule
friendly|friendlier|freundlich|=|person_grown,=dog,=answer,=letter
famous|more|berühmt|=|=singer,=actress,=painter,=doctor,=museum,=picture,=painting,=castle,=song,=poem,=film,=musician,=church,=cook,=lawyer,=university,=statue,=bridge
nice|nicer|nett|=|person_grown,=letter,=present,=email,=message
poor|poorer|arm|ärmer|=man,=woman,=farmer,=student,=village,=child,=painter,=musician
rich|richer|reich|=|=man,=woman,=uncle,=aunt,=lawyer,=city,=tourist,=singer,=boss,=customer,=actress
happy|happier|glücklich|=|person_grown,=child,=baby
sad|sadder|traurig|=|=man,=woman,=child,=girl,=boy,=film,=story,=song,=book,=letter,=dog,=fairy tale,=poem,=melody,=message
tired|more|müde|=|person_grown,=dog,=horse,=child,=donkey
sick|sicker|krank|kränker|person_grown,pet,=horse,=cow,=child
healthy|healthier|gesund|gesünder|=child,=baby,=dog,=horse,=cow,=fruit,=vegetables,=salad,=apple,=tooth
hungry|hungrier|hungrig|=|person_grown,pet,=wolf,=bear,=lion,=child,=bird,=tiger,=guest,=fox,=mouse,=goat
thirsty|thirstier|durstig|=|=man,=child,=horse,=dog,=guest,=cow,=tourist,=customer,=cat
angry|angrier|wütend|=|person_grown,=dog
polite|more|höflich|=|=waiter,=waitress,=man,=answer,=customer,=pupil,=guest,=question,=letter,=saleswoman,=boy,=policeman
brave|braver|mutig|=|=man,=woman,=girl,=policeman,=child,=boy,=policewoman,=decision,=dog,=pilot,=journalist,=farmer
lazy|lazier|faul|=|=pupil,=student,=cat,=dog,=brother,=colleague,=donkey,=son,=gardener,=boy,=nephew
hard-working|more|fleißig|=|=pupil,=student,=farmer,=gardener,=cook,=secretary,=baker,=tailor,=daughter,=colleague,=mechanic,=nurse,=girl
funny|funnier|lustig|=|=story,=film,=joke,=monkey,=uncle,=song,=programme,=picture,=play,=dream,=grandfather,=poem,=parrot,=hat,=postcard
boring|more|langweilig|=|=book,=film,=lesson,=lecture,=play,=programme,=meeting,=match,=story,=article,=party,=novel,=task,=concert,=report,=museum
interesting|more|interessant|=|reading_more,=film,=question,=idea,=lesson,=lecture,=museum,=programme,=plan,=city,=answer,=dream,=concert,=match,=journalist,=book,=task
exciting|more|spannend|=|=book,=film,=match,=story,=novel,=trip,=competition,=play,=programme,=fairy tale,=lecture
difficult|more|schwierig|=|=question,=exam,=task,=decision,=problem,=answer,=word,=rule,=puzzle,=poem,=customer,=lesson,=match
important|more|wichtig|=|idea_some,=letter,=exam,=contract,=meeting,=email,=message,=report,=match,=customer,=decision
simple|simpler|einfach|=|=question,=exam,=task,=decision,=problem,=answer,=rule,=recipe,=plan,=melody,=reason,=dress,=house,=bed
right|-|richtig|=|=answer,=decision,=key,=word,=plan,=street,=bus,=train
wrong|-|falsch|=|=answer,=decision,=key,=word,=plan,=street,=bus,=train,=ticket,=door
modern|more|modern|=|building,=kitchen,=flat,=office,=factory,=lamp,=sofa,=bathroom,=armchair,=train,art
clean|cleaner|sauber|=|room,=window,=shirt,=towel,=plate,=glass,=cup,=blanket,=beach,=lake,=water,=fork,=spoon,=knife,=blouse,=hotel
dirty|dirtier|schmutzig|=|room,=window,=shirt,=towel,=plate,=glass,=cup,=shoe,=boot,=dog,=pig,=car,=hand,=carpet,=pan,=sock,=street,=tractor
broken|-|kaputt|=|vehicle_own,device,=chair,=window,=umbrella,=cup,=doll,=gate,=drawer,=vase
empty|-|leer|=|=glass,=bottle,=cup,=plate,=bag,=suitcase,=box,=basket,=house,=flat,=room,=street,=fridge,=train,=drawer,=bucket,=beach,=wallet,=restaurant,=pot
full|-|voll|=|=glass,=bottle,=bus,=train,=suitcase,=basket,=bag,=cinema,=plate,=bucket,=stadium,=tram,=restaurant
dangerous|more|gefährlich|=|=snake,=bear,=lion,=tiger,=dog,=wolf,=street,=mountain,=river,=bridge,=trip,=thief,=knife,=mushroom
wild|wilder|wild|=|=bear,=horse,=cat,=pig,=goose,=party,=strawberry,=duck,=dog
comfortable|more|bequem|=|=chair,=sofa,=armchair,=bed,=shoe,=boot,=train,=car,=jacket,=sweater,=pillow
practical|more|praktisch|=|=bag,=backpack,=jacket,=knife,=present,=shelf,=idea,=bicycle,=coat,=pan,=car,=suitcase,=camera
soft|softer|weich|=|=bed,=pillow,=blanket,=towel,=bread,=carpet,=sofa,=egg,=butter,=scarf,=banana,=sweater,=pear
hard|harder|hart|härter|=bread,=bed,=bench,=egg,=pear,=pillow,=biscuit,=cheese,=chocolate,=roll
round|-|rund|=|=table,=tower,=carpet,=window,=box,=cake,=coin,=bowl,=pillow,=basket,=vase
narrow|narrower|schmal|=|=street,=bridge,=bed,=bench,=shelf,=door,=river,=window,=cupboard,=valley
wide|wider|breit|=|=street,=bridge,=bed,=bench,=river,=door,=window,=valley,=belt
secret|-|geheim|=|=plan,=letter,=message,=door,=meeting,=wedding,=report,=recipe,=diary,=contract
strict|stricter|streng|=|=teacher,=father,=mother,=boss,=judge,=rule,=aunt,=grandmother,=uncle,=policewoman,=nurse
patient|more|geduldig|=|=teacher,=mother,=doctor,=nurse,=dentist,=grandfather,=father,=gardener,=hairdresser,=donkey
nervous|more|nervös|=|=pupil,=student,=patient,=horse,=singer,=actress,=guest,=customer,=dog,=musician
curious|more|neugierig|=|=child,=neighbour,=cat,=boy,=girl,=tourist,=journalist,=squirrel,=guest,=goat,=hamster,=monkey
careful|more|vorsichtig|=|=pilot,=doctor,=mechanic,=dentist,=gardener,=fox,=answer,=hedgehog
punctual|more|pünktlich|=|=train,=bus,=guest,=customer,=pupil,=student,=secretary,=plane,=tram
elegant|more|elegant|=|=dress,=suit,=woman,=lawyer,=hat,=coat,=tie,=bag,=restaurant,=hotel,=shoe,=blouse,=boat,=actress
foreign|-|fremd|=|=city,=word,=ship,=man,=dog,=cat
German|-|deutsch|=|=film,=car,=song,=word,=novel,=singer,=engineer,=beer,=city,=book,=tourist,=recipe,=newspaper,=wine,=cheese
French|-|französisch|=|=film,=car,=song,=word,=novel,=singer,=cook,=wine,=city,=book,=tourist,=cheese,=bread,=painter,=recipe,=actress
Italian|-|italienisch|=|=film,=car,=song,=cook,=wine,=city,=tourist,=cheese,=painter,=recipe,=restaurant,=shoe,=ham,=coffee
English|-|englisch|=|=film,=song,=word,=novel,=singer,=tea,=city,=book,=tourist,=newspaper,=garden,=magazine,=actress,=biscuit
Swiss|-|Schweizer|-|=watch,=cheese,=chocolate,=tourist,=village,=lake,=knife,=mountain
wooden|-|hölzern|=|=bridge,=bench,=door,=box,=spoon,=table,=horse,=house,=bowl,=chair,=gate
valuable|more|wertvoll|=|=ring,=painting,=watch,=coin,=stamp,=vase,=violin,=picture,=carpet,=statue,=book,=cello
terrible|more|schrecklich|=|=dream,=mistake,=film,=story,=song,=message,=secret,=decision
wonderful|more|wunderbar|=|=trip,=party,=wedding,=concert,=idea,=dream,=garden,=cake,=song,=singer,=island,=present,=play,=cook,=beach
useful|more|nützlich|=|=book,=present,=idea,=map,=rule,=answer,=knife,=report,=camera,=vacuum cleaner,=hammer
honest|more|ehrlich|=|=answer,=man,=woman,=lawyer,=mechanic,=opinion,=friend,=boy,=thief,=butcher,=judge
unusual|more|ungewöhnlich|=|=question,=idea,=present,=hat,=answer,=tree,=house,=flower,=bird,=dream,=reason,=wedding
"""

# Manner adverbs: english | german, by group.
MANNER_TABLES: dict[str, str] = {
    "rest": "well|gut\nbadly|schlecht\npeacefully|friedlich\ndeeply|tief",
    "work": "hard|hart\ndiligently|fleißig\nwith pleasure|mit Freude\nwith great patience|mit viel Geduld",
    "loud": "loudly|laut\nvery loudly|sehr laut\nnon-stop|ununterbrochen",
    "quiet": "quietly|leise\nvery quietly|sehr leise\nfor a long time|lange",
    "joy": "with pleasure|mit Freude\nwith great enthusiasm|mit großer Begeisterung\n"
    "for a long time|lange\nwith friends|mit Freunden\nfor hours|stundenlang\nalone|allein",
    "speed": "quickly|schnell\nslowly|langsam\nvery quickly|sehr schnell\nvery slowly|sehr langsam",
    "slow": "slowly|langsam\nfor half an hour|eine halbe Stunde lang\nalone|allein\n"
    "with friends|mit Freunden",
    "patient": "patiently|geduldig\nfor a long time|lange\nfor hours|stundenlang\n"
    "impatiently|ungeduldig",
    "earlylate": "early|früh\nlate|spät\nvery early|sehr früh\nvery late|sehr spät",
    "sleepy": "quickly|schnell\nlate|spät\nvery late|sehr spät",
    "punctual": "on time|pünktlich\ntoo late|zu spät",
    "safe": "safely|sicher",
    "slowfast": "quickly|schnell\nslowly|langsam",
    "sudden": "suddenly|plötzlich",
    "friendly": "in a friendly way|freundlich\npolitely|höflich",
    "attentive": "attentively|aufmerksam\npatiently|geduldig\nwith great interest|mit großem Interesse",
    "careful": "carefully|sorgfältig\nvery carefully|sehr sorgfältig",
    "skill": "skilfully|geschickt\nquickly|schnell\nwithout help|ohne Hilfe",
    "gentle": "gently|sanft\nlovingly|liebevoll",
    "loving": "lovingly|liebevoll\nwith great patience|mit viel Geduld",
    "chance": "by chance|zufällig\nquite by chance|ganz zufällig",
    "secret": "secretly|heimlich",
    "polite": "politely|höflich\nvery politely|sehr höflich",
    "play": "well|gut\nbadly|schlecht\nwith great enthusiasm|mit großer Begeisterung",
    "speak": "well|gut\nfluently|fließend\nvery well|sehr gut",
}

# Degree adverbs before a predicative adjective.
DEGREE_TABLE = """
very|sehr
too|zu
quite|ziemlich
really|wirklich
extremely|äußerst
"""

# Where things happen: english preposition | german preposition and case (d) | noun, by group.
PLACE_TABLES: dict[str, str] = {
    "sleep": "in|in|bedroom\non|auf|sofa\nin|in|garden\nin|in|living room",
    "work": "in|in|office\nin|in|garden\nin|in|factory\nin|in|hospital\nin|in|restaurant\n"
    "in|in|hotel\nin|in|library\nat|auf|market\nin|in|shop",
    "leisure": "in|in|garden\nin|in|park\non|an|beach\nin|in|kitchen",
    "home": "in|in|kitchen\nin|in|living room\nin|in|bedroom",
    "water": "in|in|lake\nin|in|swimming pool\nin|in|sea\nin|in|river",
    "walk": "in|in|park\non|an|beach\nin|in|forest\nin|in|stadium",
    "nature": "in|in|forest\nin|in|valley\nin|in|park\non|an|beach\nby|an|river",
    "station": "at|an|station\nin|in|café\nin|in|hotel\nin front of|vor|cinema\nin front of|vor|school",
    "balcony": "in|in|garden\nin front of|vor|hotel\nbehind|hinter|house\nin|in|park",
    "couch": "on|auf|sofa\nin|in|cinema\nin|in|armchair\nin|in|theatre",
    "arrival": "at|an|station\nin|in|harbour\nin|in|city",
    "landing": "at|auf|airport",
    "outside": "on|auf|meadow\nin|in|garden\nin front of|vor|house\nin|in|park\nbehind|hinter|house",
    "hush": "in|in|library\nin|in|church\nin|in|theatre\nin|in|classroom\nin|in|cinema",
    "venue": "in|in|town hall\nin|in|hotel\nin|in|garden\nin|in|castle\nin|in|restaurant",
    "street": "in front of|vor|hotel\nin front of|vor|bridge\nin front of|vor|school\n"
    "behind|hinter|station",
    "sewing": "in|in|living room\nin|in|bedroom",
    "study": "in|in|library\nin|in|kitchen\nin|in|living room\nin|in|office\nin|in|garden",
    "readroom": "in|in|library\nin|in|garden\nin|in|café\non|auf|sofa\nin|in|bed\nin|in|park\n"
    "on|an|beach\nin|in|living room",
    "mealroom": "in|in|kitchen\nin|in|garden\nin|in|restaurant\nin|in|café\nin|in|park\non|auf|sofa",
    "kitchen": "in|in|kitchen",
    "workshop": "in|in|garage\nin|in|cellar\nin front of|vor|house\nbehind|hinter|house",
    "garden": "in|in|garden\nbehind|hinter|house\nin front of|vor|house",
    "seen": "in|in|city\nin|in|park\nin|in|forest\nat|auf|market",
    "watchroom": "in|in|living room\nat|in|cinema\nin|in|hotel",
    "meet": "in|in|café\nat|an|station\nin|in|park\nin front of|vor|cinema\nat|auf|market\n"
    "in|in|library\nat|auf|party\nin|in|theatre",
    "clinic": "in|in|hospital",
    "sport": "in|in|park\non|auf|meadow\nin|in|garden",
    "helproom": "in|in|kitchen\nin|in|garden\nin|in|office\nat|an|station\nin|in|library",
    "arrest": "at|an|station\nin|in|hotel\nin front of|vor|bakery\nat|auf|airport\nin|in|park",
    # Places of the verbs of rest.
    "stay": "in|in|hotel\nin|in|bed\nin|in|office\nin|in|hospital\nin|in|garden\nin|in|village\n"
    "in|in|city\nin|in|kitchen\non|auf|island\nin|in|school",
    "sit": "on|auf|sofa\nin|in|armchair\non|auf|bench\nin|in|garden\nin|in|café\nat|an|table\n"
    "at|an|desk\non|in|train\nin|in|kitchen\non|an|beach\nby|an|window\non|in|plane\nunder|unter|tree",
    "stand": "in front of|vor|door\nin front of|vor|university\nin|in|harbour\nbehind|hinter|post office\nbehind|hinter|house\non|auf|bridge\nby|an|window\n"
    "in front of|vor|supermarket\nnext to|neben|car\nin front of|vor|painting\nunder|unter|tree\n"
    "next to|neben|gate\non|auf|tower\nin front of|vor|pharmacy",
}

# Where people go: german preposition | noun ("to the ..." in English).
DIRECTION_TABLES: dict[str, str] = {
    "walkable": """
in|park
in|cinema
in|theatre
in|church
in|restaurant
in|café
in|library
in|museum
in|garden
in|kitchen
in|cellar
in|forest
in|office
in|hotel
in|supermarket
in|bakery
in|pharmacy
in|zoo
in|stadium
in|swimming pool
in|school
zu|station
zu|post office
zu|town hall
zu|doctor
zu|dentist
zu|hairdresser
zu|lake
zu|river
zu|bridge
zu|meeting
zu|neighbour
an|beach
auf|market
auf|playground
""",
    "reachable": """
zu|station
zu|post office
zu|town hall
zu|doctor
zu|lake
zu|river
zu|bridge
zu|supermarket
zu|bakery
zu|pharmacy
zu|school
zu|church
zu|hotel
zu|neighbour
zu|harbour
zu|car
zu|house
""",
}

# german preposition plus article for places in cities and countries:
# name english | direction german | location german | origin german
CITIES = (
    "Berlin Hamburg Munich|München Cologne|Köln Vienna|Wien Zurich|Zürich Dresden Leipzig Bremen "
    "Stuttgart Frankfurt Paris London Rome|Rom Madrid Prague|Prag Warsaw|Warschau Copenhagen|Kopenhagen "
    "Budapest Lisbon|Lissabon Athens|Athen Brussels|Brüssel Moscow|Moskau Geneva|Genf Hanover|Hannover "
    "Nuremberg|Nürnberg Salzburg Venice|Venedig"
)
# Countries without an article in German, then those with one: english | accusative | dative.
COUNTRIES_BARE = (
    "Germany|Deutschland France|Frankreich Italy|Italien Spain|Spanien Austria|Österreich "
    "Poland|Polen Denmark|Dänemark Sweden|Schweden Norway|Norwegen Greece|Griechenland "
    "Portugal Japan China India|Indien Canada|Kanada Belgium|Belgien Ireland|Irland "
    "Hungary|Ungarn Brazil|Brasilien Australia|Australien"
)
COUNTRIES_WITH_ARTICLE = (
    "Switzerland|die Schweiz|der Schweiz",
    "Turkey|die Türkei|der Türkei",
    "Ukraine|die Ukraine|der Ukraine",
    "the Netherlands|die Niederlande|den Niederlanden",
    "the United States|die Vereinigten Staaten|den Vereinigten Staaten",
)

FEMALE_NAMES = (
    "Anna Maria Julia Laura Sophie Emma Lena Clara Martha Eva Lisa Nina Petra Susanne Karin Helga "
    "Monika Sabine Johanna Marie"
)
MALE_NAMES = (
    "Peter Paul Max Felix Jan Thomas Martin Karl David Stefan Michael Andreas Oliver Simon Robert "
    "Daniel Philipp Georg Klaus Jakob"
)

NUMBERS = (
    "two|zwei three|drei four|vier five|fünf six|sechs seven|sieben eight|acht nine|neun "
    "ten|zehn eleven|elf twelve|zwölf twenty|zwanzig"
)

# Times, by the tenses they go with.  "freq" ones stand in the middle of an English clause.
TIME_TABLES: dict[str, str] = {
    "progressive": "now|jetzt\nat the moment|im Moment\ntoday|heute\nthis evening|heute Abend",
    "habit": "every day|jeden Tag\nevery morning|jeden Morgen\nevery evening|jeden Abend\n"
    "every week|jede Woche\non Mondays|montags\non Tuesdays|dienstags\non Thursdays|donnerstags\n"
    "on Saturdays|samstags\non Sundays|sonntags\n"
    "at the weekend|am Wochenende\nin the afternoon|am Nachmittag\nin the morning|am Morgen",
    "freq": "often|oft\nsometimes|manchmal\nrarely|selten\nusually|meistens",
    "past": "yesterday|gestern\nthis morning|heute Morgen\nlast week|letzte Woche\nlast year|letztes Jahr\n"
    "yesterday evening|gestern Abend\nthe day before yesterday|vorgestern\n"
    "on Monday|am Montag\non Wednesday|am Mittwoch\non Friday|am Freitag\n"
    "two days ago|vor zwei Tagen\na week ago|vor einer Woche\nthree months ago|vor drei Monaten\n"
    "last month|letzten Monat\nlast summer|letzten Sommer\nyesterday morning|gestern Morgen\n"
    "a few hours ago|vor ein paar Stunden\nlast Sunday|letzten Sonntag",
    "future": "tomorrow|morgen\nnext week|nächste Woche\nnext year|nächstes Jahr\nsoon|bald\n"
    "the day after tomorrow|übermorgen\ntomorrow morning|morgen früh\n"
    "tomorrow evening|morgen Abend\nlater|später\non Tuesday|am Dienstag\non Saturday|am Samstag\n"
    "in two weeks|in zwei Wochen\nnext month|nächsten Monat\n"
    "next Sunday|nächsten Sonntag\nin autumn|im Herbst\nin spring|im Frühling",
    "modal": "now|jetzt\ntoday|heute\ntomorrow|morgen\nnext week|nächste Woche\non Monday|am Montag\n"
    "this evening|heute Abend\nat the weekend|am Wochenende\ntomorrow morning|morgen früh",
    "perfect": "already|schon\njust|gerade\nnever|noch nie\nfinally|endlich",
    "clock": "at eight o'clock|um acht Uhr\nat nine o'clock|um neun Uhr\nat twelve o'clock|um zwölf Uhr\n"
    "at midnight|um Mitternacht\nat half past six|um halb sieben\nat half past ten|um halb elf\n"
    "at a quarter past five|um Viertel nach fünf\nat a quarter to four|um Viertel vor vier",
}

# Passing states of a person: english verb | rest | german verb | rest.
STATE_TABLE = """
be|tired|sein|müde
be|sick|sein|krank
have|little time|haben|wenig Zeit
have|a cold|sein|erkältet
have|a lot of work|haben|viel Arbeit
have|a headache|haben|Kopfschmerzen
have|a fever|haben|Fieber
be|in a hurry|haben|es eilig
have|stomach ache|haben|Bauchschmerzen
be|very tired|sein|sehr müde
have|a bad cold|sein|stark erkältet
"""

# Weather for reasons: english present | german main clause order | german verb-final order.
WEATHER_CLAUSES = """
it is raining|es regnet|es regnet
it is snowing|es schneit|es schneit
it is very cold|es ist sehr kalt|es sehr kalt ist
the weather is bad|das Wetter ist schlecht|das Wetter schlecht ist
"""

# Conditions whose subject is the person of the main clause: as STATE_TABLE.
CONDITION_TABLE = """
have|time|haben|Zeit
have|enough time|haben|genug Zeit
be|not too tired|sein|nicht zu müde
be|well again|sein|wieder gesund
be|at home|sein|zu Hause
have|the day off|haben|frei
"""

WEATHER_CONDITIONS = """
the weather is good|das Wetter gut ist
it does not rain|es nicht regnet
it is not too cold|es nicht zu kalt ist
the sun is shining|die Sonne scheint
"""

# Events that a day is ordered by: english past | english past perfect | german | auxiliary.
EVENT_TABLE = """
went to bed|gone to bed|ins Bett gegangen|sein
came home|come home|nach Hause gekommen|sein
had breakfast|had breakfast|gefrühstückt|haben
went to work|gone to work|zur Arbeit gegangen|sein
took a shower|taken a shower|geduscht|haben
left the house|left the house|das Haus verlassen|haben
had lunch|had lunch|zu Mittag gegessen|haben
got dressed|got dressed|sich angezogen|haben
went for a walk|gone for a walk|spazieren gegangen|sein
"""

# What somebody else does meanwhile: english third person progressive | german er-form.
MEANWHILE_TABLE = """
is cooking|kocht
is sleeping|schläft
is watching television|sieht fern
is tidying up|räumt auf
is working|arbeitet
is doing the shopping|kauft ein
is having breakfast|frühstückt
is taking a shower|duscht
is telephoning|telefoniert
is doing nothing|macht nichts
is laying the table|deckt den Tisch
is cutting the grass|mäht den Rasen
"""

# Main clauses that a dass clause follows: english I / he / they forms | german ich / er / sie.
THAT_TABLE = """
know/knows/know|weiß/weiß/wissen
suspect/suspects/suspect|vermute/vermutet/vermuten
say/says/say|sage/sagt/sagen
think/thinks/think|glaube/glaubt/glauben
am sure/is sure/are sure|bin sicher/ist sicher/sind sicher
have noticed/has noticed/have noticed|habe bemerkt/hat bemerkt/haben bemerkt
have heard/has heard/have heard|habe gehört/hat gehört/haben gehört
claim/claims/claim|behaupte/behauptet/behaupten
am surprised/is surprised/are surprised|bin überrascht/ist überrascht/sind überrascht
am convinced/is convinced/are convinced|bin überzeugt/ist überzeugt/sind überzeugt
"""
THAT_IMPERSONAL = """
It is true|Es stimmt
It is possible|Es ist möglich
It is strange|Es ist seltsam
It is not true|Es stimmt nicht
Everybody knows|Jeder weiß
It is surprising|Es ist überraschend
It is clear|Es ist klar
Nobody believes|Niemand glaubt
"""
WHETHER_TABLE = """
do not know/does not know/do not know|weiß nicht/weiß nicht/wissen nicht
want to know/wants to know/want to know|will wissen/will wissen/wollen wissen
am not sure/is not sure/are not sure|bin nicht sicher/ist nicht sicher/sind nicht sicher
am asking/is asking/are asking|frage/fragt/fragen
"""

# Verbs with a zu infinitive: english I / he / they | german ich / er / sie.
INFINITIVE_TABLE = """
am trying/is trying/are trying|versuche/versucht/versuchen
have forgotten/has forgotten/have forgotten|habe vergessen/hat vergessen/haben vergessen
have decided/has decided/have decided|habe beschlossen/hat beschlossen/haben beschlossen
have promised/has promised/have promised|habe versprochen/hat versprochen/haben versprochen
am planning/is planning/are planning|habe vor/hat vor/haben vor
have no time/has no time/have no time|habe keine Zeit/hat keine Zeit/haben keine Zeit
"""
INFINITIVE_IMPERSONAL = """
It is important|Es ist wichtig
It is necessary|Es ist nötig
It is not necessary|Es ist nicht nötig
It is a good idea|Es ist eine gute Idee
It is too late|Es ist zu spät
It is time|Es ist Zeit
"""

# What is said of a person: english third person singular | german er-form.
PERSON_PREDICATES = """
is my neighbour|ist mein Nachbar|m
is my uncle|ist mein Onkel|m
is my aunt|ist meine Tante|f
is my sister|ist meine Schwester|f
is my brother|ist mein Bruder|m
lives in our street|wohnt in unserer Straße|*
lives near the station|wohnt in der Nähe des Bahnhofs|*
has three children|hat drei Kinder|*
works a lot|arbeitet viel|*
has a big house|hat ein großes Haus|*
speaks three languages|spricht drei Sprachen|*
"""

WEATHER_TABLE = """
rain|raining|rained|regnen|regnet|geregnet
snow|snowing|snowed|schneien|schneit|geschneit
hail|hailing|hailed|hageln|hagelt|gehagelt
"""
WEATHER_ADJECTIVES = """
very cold|sehr kalt
very warm|sehr warm
windy|windig
foggy|neblig
sunny|sonnig
cloudy|bewölkt
too hot|zu heiß
quite cool|ziemlich kühl
"""
